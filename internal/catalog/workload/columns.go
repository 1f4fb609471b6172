package workload

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog"
)

// Containers returns the column with the names of a workload's containers, for -o wide.
func Containers[T any](of func(*T) *corev1.PodTemplateSpec) catalog.Column[T] {
	return catalog.Column[T]{Name: "Containers", Priority: 1, Description: "Names of each container in the template.",
		Cell: func(obj *T, _ time.Time) any {
			return joined(of(obj), func(c *corev1.Container) string { return c.Name })
		}}
}

// Images returns the column with the images of a workload's containers, for -o wide.
func Images[T any](of func(*T) *corev1.PodTemplateSpec) catalog.Column[T] {
	return catalog.Column[T]{Name: "Images", Priority: 1, Description: "Images referenced by each container in the template.",
		Cell: func(obj *T, _ time.Time) any {
			return joined(of(obj), func(c *corev1.Container) string { return c.Image })
		}}
}

// Selector returns the column with a workload's selector, for -o wide.
func Selector[T any](description string, of func(*T) *metav1.LabelSelector) catalog.Column[T] {
	return catalog.Column[T]{Name: "Selector", Priority: 1, Description: description,
		Cell: func(obj *T, _ time.Time) any { return metav1.FormatLabelSelector(of(obj)) }}
}

func joined(t *corev1.PodTemplateSpec, of func(*corev1.Container) string) string {
	words := make([]string, len(t.Spec.Containers))
	for i := range t.Spec.Containers {
		words[i] = of(&t.Spec.Containers[i])
	}
	return strings.Join(words, ",")
}
