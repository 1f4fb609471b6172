package namespace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"skiff/internal/client"
)

// report is what a sweep of a namespace found and did.
type report struct {
	discovery, parsing error // why not all kinds are known
	found              bool  // there was something to delete
	remains            []remains
}

// remains is what is left of a resource, or why it is not known.
type remains struct {
	resource   schema.GroupVersionResource
	count      int
	finalizers map[string]int // how many objects are held by each
	estimate   int64          // seconds that they may take
	err        error
}

const (
	// atATime is how many resources are swept at once.
	atATime = 4
	// settle is the time after a sweep that found something to the one that makes sure: requests that were on their way have arrived by then.
	settle = 20 * time.Millisecond
	// sweeps is how often that is done in a row.
	sweeps = 10
	// finalizersTake is how many seconds whoever put a finalizer may need to take it away.
	finalizersTake = 15
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// sweep deletes all that is in a namespace, and makes sure: while it finds something and all of that goes at once, it looks again a moment
// later, as more may have been on its way. grace is how long the namespace's pods may need to end.
func sweep(ctx context.Context, c *client.Client, namespace string, grace int64) (r report) {
	resources, unknown := discover(c)
	s := sweeper{api: c.Metadata(), namespace: namespace}
	for range sweeps {
		r = unknown
		s.all(ctx, resources, grace, &r)
		if !r.found || !r.isClean() {
			break
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return r
		}
	}
	return r
}

// all goes through all resources once.
func (s sweeper) all(ctx context.Context, resources map[schema.GroupVersionResource]metav1.Verbs, grace int64, r *report) {
	// Pods end first: what they use, such as their service account, is there until then.
	if verbs, served := resources[pods]; served {
		left, found := s.resource(ctx, pods, verbs, grace)
		r.add(left, found)
		if left.count > 0 {
			return
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, atATime)
	for resource, verbs := range resources {
		if resource == pods {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			left, found := s.resource(ctx, resource, verbs, 0)
			mu.Lock()
			defer mu.Unlock()
			r.add(left, found)
		})
	}
	wg.Wait()
}

func (r *report) add(left remains, found bool) {
	r.found = r.found || found
	if left.count > 0 || left.err != nil {
		r.remains = append(r.remains, left)
	}
}

// discover finds the namespaced resources whose objects can be deleted, with the verbs that they take. What cannot be discovered does not
// keep the rest from being swept.
func discover(c *client.Client) (map[schema.GroupVersionResource]metav1.Verbs, report) {
	var r report
	lists, err := c.Kubernetes().Discovery().ServerPreferredNamespacedResources()
	r.discovery = err
	resources := map[schema.GroupVersionResource]metav1.Verbs{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"delete"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			r.parsing = err
			continue
		}
		for _, resource := range list.APIResources {
			resources[gv.WithResource(resource.Name)] = resource.Verbs
		}
	}
	return resources, r
}

// sweeper deletes what is in one namespace.
type sweeper struct {
	api       metadata.Interface
	namespace string
}

// resource deletes all objects of a resource, which may take grace seconds, and says what is left and whether anything was there.
func (s sweeper) resource(ctx context.Context, resource schema.GroupVersionResource, verbs metav1.Verbs, grace int64) (left remains, found bool) {
	left = remains{resource: resource, estimate: grace}
	canList := slices.Contains(verbs, "list")
	var items []metav1.PartialObjectMetadata
	list := func() bool {
		items, canList, left.err = s.list(ctx, resource)
		return left.err == nil
	}
	if canList && (!list() || canList && len(items) == 0) {
		return left, false
	}
	found = true
	if !canList || slices.ContainsFunc(items, toDelete) {
		if left.err = s.delete(ctx, resource, verbs, items); left.err != nil {
			return left, found
		}
		if canList && !list() {
			return left, found
		}
	}
	left.count = len(items)
	for _, item := range items {
		for _, finalizer := range item.Finalizers {
			if left.finalizers == nil {
				left.finalizers = map[string]int{}
			}
			left.finalizers[finalizer]++
		}
	}
	switch {
	case left.count == 0:
		left.estimate = 0
	case left.estimate > 0:
	case len(left.finalizers) > 0:
		left.estimate = finalizersTake
	default:
		left.err = fmt.Errorf("unexpected items still remain in namespace: %s for gvr: %v", s.namespace, resource)
	}
	return left, found
}

// toDelete says whether deleting an object changes anything: it is not being deleted, or it is and waits for what depends on it, which a
// sweep in the background ends.
func toDelete(item metav1.PartialObjectMetadata) bool {
	return item.DeletionTimestamp == nil || slices.Contains(item.Finalizers, metav1.FinalizerDeleteDependents) || slices.Contains(item.Finalizers, metav1.FinalizerOrphanDependents)
}

// list says besides whether the resource can be listed after all: not all that is served can.
func (s sweeper) list(ctx context.Context, resource schema.GroupVersionResource) ([]metav1.PartialObjectMetadata, bool, error) {
	list, err := s.api.Resource(resource).Namespace(s.namespace).List(ctx, metav1.ListOptions{})
	switch {
	case unsupported(err):
		return nil, false, nil
	case err != nil:
		return nil, true, err
	}
	return list.Items, true, nil
}

// delete deletes the objects of a resource, as one collection if possible.
func (s sweeper) delete(ctx context.Context, resource schema.GroupVersionResource, verbs metav1.Verbs, items []metav1.PartialObjectMetadata) error {
	// In the background: what depends on them is swept too.
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	api := s.api.Resource(resource).Namespace(s.namespace)
	if slices.Contains(verbs, "deletecollection") {
		if err := api.DeleteCollection(ctx, options, metav1.ListOptions{}); !unsupported(err) {
			return err
		}
	}
	for _, item := range items {
		if err := api.Delete(ctx, item.Name, options); err != nil && !unsupported(err) {
			return err
		}
	}
	return nil
}

// unsupported says whether a resource has no such verb, or is not there any more.
func unsupported(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}
