package replicaset

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller/owned"
)

// newPod returns a pod of a set's template.
func newPod(s set, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: owned.Prefix(s.GetName()), Name: name, Namespace: s.GetNamespace(),
			Labels: maps.Clone(s.template.Labels), Annotations: maps.Clone(s.template.Annotations), Finalizers: slices.Clone(s.template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.Object, s.kind)},
		},
		Spec: *s.template.Spec.DeepCopy(),
	}
}
