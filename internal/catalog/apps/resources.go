package apps

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1 "k8s.io/api/autoscaling/v1"

	"skiff/internal/catalog"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet}
}

func scaleOf(want *int32, have int32, selector *metav1.LabelSelector) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
	var spec autoscalingv1.ScaleSpec
	if want != nil {
		spec.Replicas = *want
	}
	status := autoscalingv1.ScaleStatus{Replicas: have}
	if s, err := metav1.LabelSelectorAsSelector(selector); err == nil {
		status.Selector = s.String()
	}
	return spec, status
}

// fill sets a field that is nil.
func fill[V any](p **V, value V) {
	if *p == nil {
		*p = &value
	}
}
