package kinds

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

// maxKnown bounds the kinds whose resource is remembered.
const maxKnown = 1000

// Resource is where the objects of a kind are.
type Resource struct {
	schema.GroupVersionResource
	Scale schema.GroupVersion // of its subresource scale; empty if it has none
}

// Path returns the path of an object, or of a subresource of it.
func (r Resource) Path(namespace, name string, subresource ...string) []string {
	return append([]string{Path(r.GroupVersion()), "namespaces", namespace, r.Resource, name}, subresource...)
}

// Finder finds the resources of kinds and remembers them. The zero Finder knows none.
type Finder struct {
	mu    sync.Mutex
	known map[schema.GroupVersionKind]Resource
}

// Find returns the resource of a kind, and whether it was known before. A kind without a version is sought in those of its group, the preferred one first.
func (f *Finder) Find(ctx context.Context, c *client.Client, kind schema.GroupVersionKind) (found Resource, known bool, err error) {
	f.mu.Lock()
	found, known = f.known[kind]
	f.mu.Unlock()
	if known {
		return found, true, nil
	}
	if found, err = discover(ctx, c, kind); err != nil {
		return Resource{}, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil || len(f.known) >= maxKnown {
		f.known = map[schema.GroupVersionKind]Resource{}
	}
	f.known[kind] = found
	return found, false, nil
}

// Forget drops what is known of a kind: it may have gone, or changed.
func (f *Finder) Forget(kind schema.GroupVersionKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, kind)
}

func discover(ctx context.Context, c *client.Client, kind schema.GroupVersionKind) (Resource, error) {
	noMatch := &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	versions := []schema.GroupVersion{kind.GroupVersion()}
	if kind.Version != "" {
		noMatch.SearchedVersions = []string{kind.Version}
	} else {
		var err error
		if versions, err = Versions(ctx, c, kind.Group); err != nil && !apierrors.IsNotFound(err) {
			return Resource{}, fmt.Errorf("failed to find the resource of %v: %w", kind.GroupKind(), err)
		}
	}
	for _, gv := range versions {
		list := &metav1.APIResourceList{}
		if err := Get(ctx, c, list, nil, Path(gv)); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return Resource{}, fmt.Errorf("failed to find the resource of %v: %w", kind.GroupKind(), err)
		}
		i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind && !strings.Contains(r.Name, "/") })
		if i < 0 {
			continue
		}
		found := Resource{GroupVersionResource: gv.WithResource(list.APIResources[i].Name)}
		for _, r := range list.APIResources {
			if r.Name == found.Resource+"/scale" && r.Kind == "Scale" {
				found.Scale = schema.GroupVersion{Group: r.Group, Version: r.Version}
			}
		}
		return found, nil
	}
	return Resource{}, noMatch
}

// Versions returns the versions of a group, the preferred one first.
func Versions(ctx context.Context, c *client.Client, group string) (all []schema.GroupVersion, err error) {
	if group == "" {
		return []schema.GroupVersion{{Version: "v1"}}, nil
	}
	found := &metav1.APIGroup{}
	if err := Get(ctx, c, found, nil, "/apis", group); err != nil {
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

// Path returns the path of a group version.
func Path(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// Get gets the JSON of what lies at a path.
func Get(ctx context.Context, c *client.Client, into any, params map[string]string, path ...string) error {
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
