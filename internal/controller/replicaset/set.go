package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// set is the common view of a ReplicaSet or a ReplicationController.
type set struct {
	controller.Object
	kind            schema.GroupVersionKind
	replicas        int
	minReadySeconds int32
	selector        labels.Selector
	template        *corev1.PodTemplateSpec
	status          appsv1.ReplicaSetStatus
	// countsTerminating reports whether the kind's status has terminatingReplicas.
	countsTerminating bool
	// withStatus returns a copy of the object with another status.
	withStatus func(appsv1.ReplicaSetStatus) controller.Object
	// get reads the object from the API server.
	get func(context.Context, *client.Client) (metav1.Object, error)
}

// fromReplicaSet returns false for what validation refuses: a set with an empty selector must not adopt every pod.
func fromReplicaSet(obj any) (set, bool) {
	rs, ok := obj.(*appsv1.ReplicaSet)
	if !ok {
		return set{}, false
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil || selector.Empty() {
		return set{}, false
	}
	return set{
		Object: rs, kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		replicas: int(ptr.Deref(rs.Spec.Replicas, 1)), minReadySeconds: rs.Spec.MinReadySeconds,
		selector: selector, template: &rs.Spec.Template, status: rs.Status, countsTerminating: true,
		withStatus: func(status appsv1.ReplicaSetStatus) controller.Object {
			out := rs.DeepCopy()
			out.Status = status
			return out
		},
		get: func(ctx context.Context, c *client.Client) (metav1.Object, error) {
			return c.Kubernetes().AppsV1().ReplicaSets(rs.Namespace).Get(ctx, rs.Name, metav1.GetOptions{})
		},
	}, true
}

func fromReplicationController(obj any) (set, bool) {
	rc, ok := obj.(*corev1.ReplicationController)
	if !ok || rc.Spec.Template == nil || len(rc.Spec.Selector) == 0 {
		return set{}, false
	}
	status := appsv1.ReplicaSetStatus{
		Replicas: rc.Status.Replicas, FullyLabeledReplicas: rc.Status.FullyLabeledReplicas, ReadyReplicas: rc.Status.ReadyReplicas,
		AvailableReplicas: rc.Status.AvailableReplicas, ObservedGeneration: rc.Status.ObservedGeneration,
	}
	for _, c := range rc.Status.Conditions {
		status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message})
	}
	return set{
		Object: rc, kind: corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		replicas: int(ptr.Deref(rc.Spec.Replicas, 1)), minReadySeconds: rc.Spec.MinReadySeconds,
		selector: labels.SelectorFromSet(rc.Spec.Selector), template: rc.Spec.Template, status: status,
		withStatus: func(status appsv1.ReplicaSetStatus) controller.Object {
			out := rc.DeepCopy()
			out.Status = corev1.ReplicationControllerStatus{
				Replicas: status.Replicas, FullyLabeledReplicas: status.FullyLabeledReplicas, ReadyReplicas: status.ReadyReplicas,
				AvailableReplicas: status.AvailableReplicas, ObservedGeneration: status.ObservedGeneration,
			}
			for _, c := range status.Conditions {
				out.Status.Conditions = append(out.Status.Conditions, corev1.ReplicationControllerCondition{
					Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status,
					LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message})
			}
			return out
		},
		get: func(ctx context.Context, c *client.Client) (metav1.Object, error) {
			return c.Kubernetes().CoreV1().ReplicationControllers(rc.Namespace).Get(ctx, rc.Name, metav1.GetOptions{})
		},
	}, true
}
