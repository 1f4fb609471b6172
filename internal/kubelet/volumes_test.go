package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/status"
)

// Volumes that show a pod's labels show new ones at once, not when volumes are next brought up to date.
func TestVolumesFollowThePod(t *testing.T) {
	w := newWorld(t)
	pod := w.create("web", "{containers: [{name: a, image: nginx}]}")
	w.await("web", ready)
	for i, patch := range []string{`{"metadata":{"labels":{"color":"red"}}}`, `{"metadata":{"annotations":{"note":"hello"}}}`} {
		if _, err := w.client.CoreV1().Pods("default").Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually(func() string {
			if n := w.volumes.SetUps(pod.UID); n < i+2 {
				return "the volumes do not show " + patch
			}
			return ""
		})
	}
}

// However often a pod is looked at, the next look that brings its volumes up to date does not move away.
func TestNextLook(t *testing.T) {
	w := &worker{mounted: time.Now().Add(-resync / 2), k: &Kubelet{writer: status.NewWriter(status.Options{})}}
	if d := time.Until(w.next(&corev1.Pod{}, time.Now().Add(2*time.Hour))); d > resync {
		t.Errorf("volumes are half a resync old and the next look is in %v", d)
	}
}
