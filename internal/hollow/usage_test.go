package hollow

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodUsage(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("1Mi")}}},
		{Name: "b"}, {Name: "waits"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a", State: running}, {Name: "b", State: running}, {Name: "waits"}}}}
	shown := func() (text string) {
		for _, c := range podUsage(pod, time.Now()) {
			text += fmt.Sprintf("%s %dm %dKi; ", c.Container, *c.Rate/1_000_000, c.Memory>>10)
		}
		return text
	}
	if got, want := shown(), "a 100m 1024Ki; b 0m 0Ki; "; got != want {
		t.Errorf("requests: got %s, want %s", got, want)
	}
	pod.Annotations = map[string]string{annotationCPU: "250m", annotationMemory: "nonsense"}
	if got, want := shown(), "a 250m 1024Ki; b 250m 0Ki; "; got != want {
		t.Errorf("annotations: got %s, want %s", got, want)
	}
	pod.Status.Phase = corev1.PodSucceeded
	if got := shown(); got != "" {
		t.Errorf("a pod that has ended uses %s", got)
	}
}
