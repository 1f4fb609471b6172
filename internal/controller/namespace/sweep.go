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
	"k8s.io/client-go/metadata"

	"skiff/internal/client"
)

// report is the result of a sweep of a namespace.
type report struct {
	discovery, parsing error // errors of discovery: not all resources are known
	foundAny           bool  // there were objects to delete
	remains            []remains
}

// remains describes the remaining objects of a resource, or the error of deleting them.
type remains struct {
	resource   schema.GroupVersionResource
	count      int
	finalizers map[string]int // number of objects by finalizer
	estimate   int64          // seconds that their deletion may take
	err        error
}

const (
	// parallelResources is how many resources are swept at a time.
	parallelResources = 4
	// settle is the time between a sweep that found objects and the next: requests that were in flight have arrived by then.
	settle = 20 * time.Millisecond
	// sweeps is how many sweeps follow each other at most.
	sweeps = 10
	// finalizerSeconds is how many seconds the owner of a finalizer may need to remove it.
	finalizerSeconds = 15
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// sweep deletes all objects of a namespace. While it finds objects and all of them are deleted at once, it sweeps again a moment later, as more
// may have been in flight. grace is how many seconds the namespace's pods may need to terminate.
func sweep(ctx context.Context, c *client.Client, namespace string, grace int64) (r report) {
	resources, unknown := discover(ctx, c)
	s := sweeper{api: c.Metadata(), namespace: namespace}
	for range sweeps {
		r = unknown
		s.all(ctx, resources, grace, &r)
		if !r.foundAny || !r.isClean() {
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

// all sweeps all resources once.
func (s sweeper) all(ctx context.Context, resources map[schema.GroupVersionResource]metav1.Verbs, grace int64, r *report) {
	// Pods are deleted first: what they use, such as their service account, has to exist until they have terminated.
	if verbs, served := resources[pods]; served {
		left, found := s.resource(ctx, pods, verbs, grace)
		r.add(left, found)
		if left.count > 0 {
			return
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, parallelResources)
	for resource, verbs := range resources {
		if resource == pods {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			left, found := s.resource(ctx, resource, verbs, 0)
			mu.Lock()
			defer mu.Unlock()
			r.add(left, found)
		})
	}
	wg.Wait()
}

func (r *report) add(left remains, found bool) {
	r.foundAny = r.foundAny || found
	if left.count > 0 || left.err != nil {
		r.remains = append(r.remains, left)
	}
}

// sweeper deletes the objects of one namespace.
type sweeper struct {
	api       metadata.Interface
	namespace string
}

// resource deletes all objects of a resource, which may take grace seconds. It returns what is left and whether there were objects.
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
		left.estimate = finalizerSeconds
	default:
		left.err = fmt.Errorf("unexpected items still remain in namespace: %s for gvr: %v", s.namespace, resource)
	}
	return left, found
}

// toDelete reports whether deleting an object has an effect: it is not being deleted yet, or waits for its dependents, which background
// deletion ends.
func toDelete(item metav1.PartialObjectMetadata) bool {
	return item.DeletionTimestamp == nil || slices.Contains(item.Finalizers, metav1.FinalizerDeleteDependents) || slices.Contains(item.Finalizers, metav1.FinalizerOrphanDependents)
}

// list lists the objects of a resource. It returns false if the resource cannot be listed after all.
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
	// Background propagation: dependents are swept too.
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

// unsupported reports whether an error means that a resource has no such verb, or is no longer served.
func unsupported(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}
