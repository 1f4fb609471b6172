package disruption

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/client"
	"skiff/internal/controller"
)

const (
	// parallelReads is how many scales are read at a time for one budget.
	parallelReads = 8
	// maxKnownKinds bounds the kinds whose resource is remembered.
	maxKnownKinds = 1000
)

// scaleQuery is a question to the API for the scale of a controller.
type scaleQuery struct {
	ref       metav1.OwnerReference
	namespace string

	found *scale // nil if there is no such controller
	err   error
}

func (q *scaleQuery) String() string {
	return fmt.Sprintf("read scale of %s %s/%s", q.ref.Kind, q.namespace, q.ref.Name)
}

// scaleReader reads the scale subresource of controllers of any kind.
type scaleReader struct {
	mu        sync.Mutex
	resources map[schema.GroupVersionKind]string // that are known to have the subresource scale
}

// action returns the action that answers a query. It does not fail: the query holds the error.
func (r *scaleReader) action(q *scaleQuery) controller.Action {
	return controller.Call(q.String(), func(ctx context.Context, c *client.Client) error {
		q.found, q.err = r.read(ctx, c, q)
		return nil
	})
}

func (r *scaleReader) read(ctx context.Context, c *client.Client, q *scaleQuery) (*scale, error) {
	gv, err := schema.ParseGroupVersion(q.ref.APIVersion)
	if err != nil {
		return nil, err
	}
	kind := gv.WithKind(q.ref.Kind)
	resource, known, err := r.resource(ctx, c, kind)
	if err != nil {
		return nil, err
	}
	found, err := readScale(ctx, c, gv.WithResource(resource), q)
	if !apierrors.IsNotFound(err) {
		return found, err
	}
	if known { // if the resource was found a while ago, it may have gone, too
		r.forget(kind)
		if _, _, err := r.resource(ctx, c, kind); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// resource returns the resource of a kind, and whether it was known before.
func (r *scaleReader) resource(ctx context.Context, c *client.Client, kind schema.GroupVersionKind) (name string, known bool, err error) {
	r.mu.Lock()
	name, known = r.resources[kind]
	r.mu.Unlock()
	if known {
		return name, true, nil
	}
	if name, err = discoverScale(ctx, c, kind); err != nil {
		return "", false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resources == nil || len(r.resources) >= maxKnownKinds {
		r.resources = map[schema.GroupVersionKind]string{}
	}
	r.resources[kind] = name
	return name, false, nil
}

func (r *scaleReader) forget(kind schema.GroupVersionKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.resources, kind)
}

// apiPath returns the path of a group version.
func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// discoverScale returns the resource of a kind, if that has the subresource scale.
func discoverScale(ctx context.Context, c *client.Client, kind schema.GroupVersionKind) (string, error) {
	noMatch := &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	list := &metav1.APIResourceList{}
	body, err := c.Kubernetes().Discovery().RESTClient().Get().AbsPath(apiPath(kind.GroupVersion())).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(body, list)
	}
	if apierrors.IsNotFound(err) {
		return "", noMatch
	}
	if err != nil {
		return "", fmt.Errorf("failed to find the resource of %v: %w", kind, err)
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind && !strings.Contains(r.Name, "/") })
	if i < 0 {
		return "", noMatch
	}
	name := list.APIResources[i].Name
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name+"/scale" && isScale(r) }) {
		return "", fmt.Errorf("%v does not implement the scale subresource", schema.GroupResource{Group: kind.Group, Resource: name})
	}
	return name, nil
}

// isScale reports whether a subresource has a Scale of a known version.
func isScale(r metav1.APIResource) bool {
	switch (schema.GroupVersion{Group: r.Group, Version: r.Version}).String() {
	case "autoscaling/v1", "extensions/v1beta1", "apps/v1beta1", "apps/v1beta2":
		return r.Kind == "Scale"
	}
	return false
}

// readScale reads the scale of an object. All versions of Scale have its uid and its replicas in the same place.
func readScale(ctx context.Context, c *client.Client, resource schema.GroupVersionResource, q *scaleQuery) (*scale, error) {
	body, err := c.Kubernetes().Discovery().RESTClient().Get().AbsPath(apiPath(resource.GroupVersion()), "namespaces", q.namespace, resource.Resource, q.ref.Name, "scale").
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var s autoscalingv1.Scale
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("failed to decode the scale of %s %s/%s: %w", q.ref.Kind, q.namespace, q.ref.Name, err)
	}
	return &scale{s.UID, s.Spec.Replicas}, nil
}
