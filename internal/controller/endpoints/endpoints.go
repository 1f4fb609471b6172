package endpoints

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	endpointsliceutil "k8s.io/endpointslice/util"

	"skiff/internal/controller"
	"skiff/internal/controller/services"
)

// New returns the loop. Its keys are Services.
func New(deps controller.Deps) controller.Loop {
	core := deps.Informers.Core().V1()
	l := &loop{services: core.Services().Lister(), pods: core.Pods().Lister(), endpoints: core.Endpoints().Lister(), times: endpointsliceutil.NewTriggerTimeTracker()}
	return controller.Loop{
		Name: "endpoints-controller", ServiceAccount: "endpoint-controller", EventSource: "endpoint-controller", QueueName: "endpoint",
		Watch: []controller.Watch{
			{Informer: core.Services().Informer(), Type: &corev1.Service{}},
			{Informer: core.Pods().Informer(), Type: &corev1.Pod{}, Keys: services.OfPod(l.services)},
			{Informer: core.Endpoints().Informer(), Type: &corev1.Endpoints{}, Keys: keysOfDeleted},
		},
		Reconcile: l.reconcile,
		Run:       l.deleteLeftovers,
	}
}

type loop struct {
	services  corelisters.ServiceLister
	pods      corelisters.PodLister
	endpoints corelisters.EndpointsLister
	// times tracks when the first change happened that Endpoints do not reflect yet, for the annotation that says so.
	times *endpointsliceutil.TriggerTimeTracker
}

// keysOfDeleted returns the key of deleted Endpoints, so that they are created again. What others write into them, or Endpoints without a Service, stays.
func keysOfDeleted(before, after metav1.Object) []controller.Key {
	if after != nil {
		return nil
	}
	return []controller.Key{controller.KeyOf(before)}
}

// leaderElection is the annotation of Endpoints that belong to no Service but are a leader election lock.
const leaderElection = "control-plane.alpha.kubernetes.io/leader"

// deleteLeftovers deletes, once, the Endpoints of Services that were deleted while the loop did not run.
func (l *loop) deleteLeftovers(ctx context.Context, do controller.Do) {
	all, err := l.endpoints.List(labels.Everything())
	if err != nil {
		return
	}
	for _, e := range all {
		if _, lock := e.Annotations[leaderElection]; lock {
			continue
		}
		if _, err := l.services.Services(e.Namespace).Get(e.Name); apierrors.IsNotFound(err) {
			// They are harmless. If this fails, they are deleted when the loop is started the next time.
			_ = do(ctx, controller.Delete(e, metav1.DeleteOptions{}))
		}
	}
}

// reconcile reads the pods that a Service selects and its Endpoints from the caches.
func (l *loop) reconcile(key controller.Key, _ time.Time) controller.Decision {
	current, err := l.endpoints.Endpoints(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Decision{Err: err}
	}
	service, err := l.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		l.times.DeleteService(key.Namespace, key.Name)
		if current == nil {
			return controller.Nothing
		}
		return controller.Decision{Actions: []controller.Action{controller.Delete(current, metav1.DeleteOptions{})}}
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName || service.Spec.Selector == nil {
		return controller.Nothing // its Endpoints are managed by others
	}
	pods, err := l.pods.Pods(key.Namespace).List(labels.Set(service.Spec.Selector).AsSelectorPreValidated())
	if err != nil {
		return controller.Decision{Err: err}
	}
	return decide(service, pods, current, l.times.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods))
}
