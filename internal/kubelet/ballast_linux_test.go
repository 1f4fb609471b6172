package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/eviction"
)

// On a full disk the evicted pod is killed and loses its volumes before the runtime is asked to stop it, which could not be stored before; and the ballast
// file is removed.
func TestEvictsFromFullDisk(t *testing.T) {
	w := newFixture(t)
	w.stop()
	var left atomic.Int64
	left.Store(1 << 30)
	w.prepare = func(k *Kubelet) {
		k.measure = func(context.Context) (eviction.Signals, error) {
			return eviction.Signals{NodeDisk: eviction.Amount{Available: left.Load(), Capacity: 4 << 30}}, nil
		}
	}
	w.start(func(o *Options) { o.PressureEvery = 20 * time.Millisecond })
	pod := w.create("fills", "{containers: [{name: a, image: nginx}]}")
	w.await("fills", ready)
	ballast := filepath.Join(w.kubelet.options.RootDir, "ballast")
	w.eventually(func() string {
		info, err := os.Stat(ballast)
		if err != nil {
			return err.Error()
		}
		if info.Size() != 64<<20 {
			return "the ballast is too small"
		}
		return ""
	})
	w.runtime.Delay("StopContainer", 500*time.Millisecond)
	left.Store(1 << 20)
	w.eventually(func() string {
		if w.volumes.SetUps(pod.UID) > 0 {
			return "the pod still has volumes"
		}
		return ""
	})
	if c := w.runtime.Containers(pod.UID, "a"); len(c) != 1 || c[0].State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the runtime ended the container before its volumes were removed: %+v", c)
	}
	if _, err := os.Stat(ballast); !os.IsNotExist(err) {
		t.Errorf("the ballast is still there: %v", err)
	}
	if groups, err := w.cgroups.Left(); err != nil || len(groups) > 0 {
		t.Errorf("control groups %v are left: %v", groups, err)
	}
	done := w.await("fills", phase(corev1.PodFailed))
	if done.Status.Reason != "Evicted" || !strings.HasPrefix(done.Status.Message, "The node was low on resource: ephemeral-storage.") {
		t.Errorf("%s: %s", done.Status.Reason, done.Status.Message)
	}
	w.awaitEvent("fills", "Warning Evicted The node was low on resource: ephemeral-storage.")
	left.Store(1 << 30)
	w.eventually(func() string {
		if _, err := os.Stat(ballast); err != nil {
			return err.Error()
		}
		return ""
	})
}
