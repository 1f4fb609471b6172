package kubelet

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/kubelettest"
)

// Each termination of a container is counted once, however often its pod's status is computed.
func TestEndsAreCounted(t *testing.T) {
	w := newFixture(t)
	w.runtime.Script("i", kubelettest.Script{EndsItself: true, Runs: 5 * time.Millisecond})
	w.runtime.Script("a", kubelettest.Script{EndsItself: true, Runs: 5 * time.Millisecond, ExitCode: 139})
	w.create("web", "{restartPolicy: Never, initContainers: [{name: i, image: nginx}], containers: [{name: a, image: nginx}]}")
	w.await("web", phase(corev1.PodFailed))
	w.delete("web", 0)
	w.awaitGone("web")
	families, err := w.kubelet.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); f.GetName() == "kubelet_terminated_containers_total" {
				got[fmt.Sprintf("%s %s %s", l[0].GetValue(), l[1].GetValue(), l[2].GetValue())] = m.GetCounter().GetValue()
			}
		}
	}
	if want := map[string]float64{"init_container 0 Completed": 1, "container 139 Error": 1}; !maps.Equal(got, want) {
		t.Errorf("ended %v, want %v", got, want)
	}
}
