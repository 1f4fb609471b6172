package endpointslicemirroring

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
)

const (
	// managedBy is the value of the label endpointslice.kubernetes.io/managed-by of this loop's slices.
	managedBy = "endpointslicemirroring-controller.k8s.io"
	// byEndpoints is the name of the index of slices by Endpoints.
	byEndpoints = "endpointslicemirroring-controller.endpoints"
	// leaderElection is the annotation of Endpoints that are a leader election lock.
	leaderElection = "control-plane.alpha.kubernetes.io/leader"
)

// New returns the loop. Its keys are Endpoints, which have the names of their Services.
func New(deps controller.Deps) controller.Loop {
	core, slices := deps.Informers.Core().V1(), deps.Informers.Discovery().V1().EndpointSlices().Informer()
	if err := slices.AddIndexers(cache.Indexers{byEndpoints: mirrors}); err != nil {
		panic(err) // only if the index name is in use
	}
	l := &loop{services: core.Services().Lister(), endpoints: core.Endpoints().Lister(), slices: slices.GetIndexer()}
	return controller.Loop{
		Name: "endpointslice-mirroring-controller", ServiceAccount: "endpointslicemirroring-controller", EventSource: "endpoint-slice-mirroring-controller", QueueName: "endpoint_slice_mirroring",
		Watch: []controller.Watch{
			{Informer: core.Endpoints().Informer(), Type: &corev1.Endpoints{}, Keys: keysOfEndpoints},
			{Informer: core.Services().Informer(), Type: &corev1.Service{}, Keys: keysOfService},
			{Informer: slices, Type: &discoveryv1.EndpointSlice{}, Keys: keysOfSlice},
		},
		Reconcile: l.reconcile,
	}
}

type loop struct {
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	slices    cache.Indexer
}

// mirrors returns the key of the Endpoints that a slice mirrors.
func mirrors(obj any) ([]string, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelManagedBy] != managedBy || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

// mirrored reports whether Endpoints are to be mirrored if their Service selects no pods.
func mirrored(e metav1.Object) bool {
	_, lock := e.GetAnnotations()[leaderElection]
	return e.GetLabels()[discoveryv1.LabelSkipMirror] != "true" && !lock
}

func keysOfEndpoints(before, after metav1.Object) []controller.Key {
	for _, e := range []metav1.Object{before, after} {
		if e != nil && mirrored(e) {
			return []controller.Key{controller.KeyOf(e)}
		}
	}
	return nil
}

// keysOfService returns the key of a Service that has no selector, or whose selector was added or removed.
func keysOfService(before, after metav1.Object) []controller.Key {
	was, _ := before.(*corev1.Service)
	is, _ := after.(*corev1.Service)
	switch {
	case was != nil && is != nil && (was.Spec.Selector == nil) != (is.Spec.Selector == nil),
		was == nil && is != nil && is.Spec.Selector == nil, is == nil && was != nil && was.Spec.Selector == nil:
	default:
		return nil
	}
	if is == nil {
		is = was
	}
	return []controller.Key{controller.KeyOf(is)}
}

func keysOfSlice(before, after metav1.Object) []controller.Key {
	var keys []controller.Key
	for _, slice := range []metav1.Object{before, after} {
		values, _ := mirrors(slice)
		for _, value := range values {
			namespace, name, _ := strings.Cut(value, "/")
			if key := (controller.Key{Namespace: namespace, Name: name}); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func (l *loop) reconcile(key controller.Key, _ time.Time) controller.Decision {
	found, err := l.slices.ByIndex(byEndpoints, key.String())
	if err != nil {
		return controller.Decision{Err: err}
	}
	var existing []*discoveryv1.EndpointSlice
	for _, obj := range found {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && slice.DeletionTimestamp == nil {
			existing = append(existing, slice)
		}
	}
	endpoints, err := l.endpoints.Endpoints(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Decision{Err: err}
	}
	service, err := l.services.Services(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Decision{Err: err}
	}
	if endpoints == nil || !mirrored(endpoints) || service == nil || service.Spec.Selector != nil {
		endpoints = nil // there is nothing to mirror
	}
	return decide(endpoints, existing)
}
