package endpoints

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

const (
	labelManagedBy = "endpoints.kubernetes.io/managed-by"
	managedBy      = "endpoint-controller"
)

// decide returns what to do about a Service's Endpoints, which are nil if there are none. changed is when the first change happened that they do not
// reflect.
func decide(service *corev1.Service, pods []*corev1.Pod, current *corev1.Endpoints, changed time.Time) controller.Decision {
	subsets := subsetsOf(service, pods)
	if current != nil && same(current.Subsets, subsets) && labelsRight(current.Labels, service.Labels) && !overCapacity(current) {
		return controller.Nothing
	}
	next := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
	if current != nil {
		next = current.DeepCopy()
	}
	next.Labels = maps.Clone(service.Labels)
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	delete(next.Labels, corev1.IsHeadlessService)
	if ip := service.Spec.ClusterIP; ip == "" || ip == corev1.ClusterIPNone {
		next.Labels[corev1.IsHeadlessService] = ""
	}
	next.Labels[labelManagedBy] = managedBy
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	delete(next.Annotations, corev1.EndpointsLastChangeTriggerTime)
	if !changed.IsZero() {
		next.Annotations[corev1.EndpointsLastChangeTriggerTime] = changed.UTC().Format(time.RFC3339Nano)
	}
	var truncated bool
	next.Subsets, truncated = truncate(subsets)
	delete(next.Annotations, corev1.EndpointsOverCapacity)
	if truncated {
		next.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	return write(service, next, current == nil)
}

// write writes Endpoints, and records an Event if that fails.
func write(service *corev1.Service, e *corev1.Endpoints, create bool) controller.Decision {
	action, reason, text := controller.Update(e), "FailedToUpdateEndpoint", "Failed to update endpoint %v: %v"
	if create {
		action, reason, text = controller.Create(e), "FailedToCreateEndpoint", "Failed to create endpoint for service %v: %v"
	}
	return controller.Decision{Actions: []controller.Action{action}, Then: func(err error) controller.Decision {
		if err == nil || create && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return controller.Nothing // it would fail until the Service is deleted too
		}
		return controller.Decision{Err: err, Actions: []controller.Action{controller.Event(e, corev1.EventTypeWarning, reason, text, controller.KeyOf(service), err)}}
	}}
}

// labelsRight reports whether Endpoints have the labels of their Service and those that this loop adds.
func labelsRight(have, want map[string]string) bool {
	if have[labelManagedBy] != managedBy {
		return false
	}
	added := 0
	for name, value := range have {
		if name == corev1.IsHeadlessService || name == labelManagedBy {
			added++
		} else if v, ok := want[name]; !ok || v != value {
			return false
		}
	}
	return len(want) == len(have)-added
}

// overCapacity reports whether Endpoints have too many addresses, or are annotated so.
func overCapacity(e *corev1.Endpoints) bool {
	_, annotated := e.Annotations[corev1.EndpointsOverCapacity]
	ready, notReady := count(e.Subsets)
	return annotated || ready+notReady > capacity
}
