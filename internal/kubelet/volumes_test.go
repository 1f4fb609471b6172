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
	w := newFixture(t)
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

// However often a pod is synced, the sync that refreshes its volumes is not postponed.
func TestNextSync(t *testing.T) {
	w := &worker{mountedAt: time.Now().Add(-resync / 2), k: &Kubelet{writer: status.NewWriter(status.Options{})}}
	if d := time.Until(w.nextSync(&corev1.Pod{}, time.Now().Add(2*time.Hour))); d > resync {
		t.Errorf("volumes are half a resync old and the next sync is in %v", d)
	}
}
