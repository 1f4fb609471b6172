package podautoscaler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/client"
)

// maxKnownKinds bounds the kinds whose resource is remembered.
const maxKnownKinds = 1000

// resources finds the resources of kinds by discovery.
type resources struct {
	mu    sync.Mutex
	known map[schema.GroupKind]apiResource
}

// apiResource is a resource in the version of its group that is preferred of those that have it.
type apiResource struct {
	schema.GroupVersionResource
	scalable bool // it has a scale of autoscaling/v1
}

// of returns the resource of a kind, and whether it was known before.
func (r *resources) of(ctx context.Context, c *client.Client, kind schema.GroupKind) (found apiResource, known bool, err error) {
	r.mu.Lock()
	found, known = r.known[kind]
	r.mu.Unlock()
	if known {
		return found, true, nil
	}
	if found, err = discover(ctx, c, kind); err != nil {
		return apiResource{}, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxKnownKinds {
		r.known = map[schema.GroupKind]apiResource{}
	}
	r.known[kind] = found
	return found, false, nil
}

func (r *resources) forget(kind schema.GroupKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, kind)
}

// discover finds the resource of a kind in the group's versions, the preferred one first.
func discover(ctx context.Context, c *client.Client, kind schema.GroupKind) (apiResource, error) {
	versions, err := versionsOf(ctx, c, kind.Group)
	if err != nil && !apierrors.IsNotFound(err) {
		return apiResource{}, fmt.Errorf("failed to find the resource of %v: %w", kind, err)
	}
	for _, gv := range versions {
		list := &metav1.APIResourceList{}
		if err := getJSON(ctx, c, list, nil, apiPath(gv)); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return apiResource{}, fmt.Errorf("failed to find the resource of %v: %w", kind, err)
		}
		i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind && !strings.Contains(r.Name, "/") })
		if i < 0 {
			continue
		}
		name := list.APIResources[i].Name
		return apiResource{gv.WithResource(name), slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
			return r.Name == name+"/scale" && r.Group == "autoscaling" && r.Version == "v1" && r.Kind == "Scale"
		})}, nil
	}
	return apiResource{}, &meta.NoKindMatchError{GroupKind: kind}
}

// versionsOf returns the versions of a group, the preferred one first.
func versionsOf(ctx context.Context, c *client.Client, group string) (all []schema.GroupVersion, err error) {
	if group == "" {
		return []schema.GroupVersion{{Version: "v1"}}, nil
	}
	found := &metav1.APIGroup{}
	if err := getJSON(ctx, c, found, nil, "/apis", group); err != nil {
		return nil, err
	}
	if preferred := found.PreferredVersion.Version; preferred != "" {
		all = append(all, schema.GroupVersion{Group: group, Version: preferred})
	}
	for _, v := range found.Versions {
		if v.Version != found.PreferredVersion.Version {
			all = append(all, schema.GroupVersion{Group: group, Version: v.Version})
		}
	}
	return all, nil
}

// apiPath returns the path of a group version.
func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// getJSON gets what lies at a path.
func getJSON(ctx context.Context, c *client.Client, into any, params map[string]string, path ...string) error {
	r := c.Kubernetes().Discovery().RESTClient().Get().AbsPath(path...).SetHeader("Accept", "application/json")
	for name, value := range params {
		r.Param(name, value)
	}
	body, err := r.DoRaw(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("failed to decode the answer to GET %s: %w", strings.Join(path, "/"), err)
	}
	return nil
}
