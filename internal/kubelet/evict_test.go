package kubelet

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/kubelettest"
)

// When memory runs out the pod that exceeds its request the most is evicted; the node gets MemoryPressure, and rejects BestEffort pods.
func TestEvicts(t *testing.T) {
	w := newFixture(t)
	w.stop()
	var left atomic.Int64
	left.Store(1 << 30)
	var hog atomic.Value
	w.prepare = func(k *Kubelet) {
		k.measure = func(context.Context) (eviction.Signals, error) {
			now := left.Load()
			if p, ok := hog.Load().(*corev1.Pod); ok && !slices.ContainsFunc(w.runtime.Containers(p.UID, "a"), func(c kubelettest.Container) bool {
				return c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
			}) {
				now = 1 << 30 // as soon as it has gone
			}
			return eviction.Signals{Memory: eviction.Amount{Available: now, Capacity: 4 << 30}}, nil
		}
	}
	w.start(func(o *Options) { o.PressureEvery = 20 * time.Millisecond })
	w.create("hog", "{containers: [{name: a, image: nginx}]}")
	w.create("modest", "{containers: [{name: a, image: nginx}]}")
	hog.Store(w.await("hog", ready))
	w.await("modest", ready)
	w.runtime.SetMemory("hog", 3<<30)
	w.runtime.SetMemory("modest", 1<<20)
	left.Store(50 << 20)
	pod := w.await("hog", phase(corev1.PodFailed))
	if pod.Status.Reason != "Evicted" || !strings.HasPrefix(pod.Status.Message, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ") {
		t.Errorf("%s: %s", pod.Status.Reason, pod.Status.Message)
	}
	target := false
	for _, c := range pod.Status.Conditions {
		target = target || c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonTerminationByKubelet
	}
	if !target {
		t.Errorf("conditions %+v do not say that it was the kubelet", pod.Status.Conditions)
	}
	w.awaitEvent("hog", "Warning Evicted The node was low on resource: memory.")
	w.eventually(func() string {
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeMemoryPressure && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return "the node does not say that it has too little memory"
	})
	if !ready(w.get("modest")) {
		t.Error("the wrong pod had to go, too")
	}
	w.create("another", "{containers: [{name: a, image: nginx}]}")
	if pod := w.await("another", phase(corev1.PodFailed)); pod.Status.Reason != "Evicted" {
		t.Errorf("%s: %s", pod.Status.Reason, pod.Status.Message)
	}
}
