package machine

import (
	"testing"

	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/kubelettest"
)

// TestSignals measures this machine, and a node whose memory was set lower than the machine's: it has that less what its pods use.
func TestSignals(t *testing.T) {
	used := func() (cgroup.Usage, error) { return cgroup.Usage{WorkingSet: 300 << 20}, nil }
	m, dir, runtime := &Machine{Memory: 1 << 60}, t.TempDir(), kubelettest.NewRuntime()
	s, err := m.Signals(t.Context(), dir, runtime, used)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]eviction.Amount{"memory": s.Memory, "disk": s.NodeDisk, "image disk": s.ImageDisk, "inodes": s.NodeInodes, "PIDs": s.PIDs} {
		if a.Capacity <= 0 || a.Available <= 0 || a.Available > a.Capacity {
			t.Errorf("%s: %+v", name, a)
		}
	}
	m.Memory = 1 << 30
	less, err := m.availableMemory(used)
	if err != nil || less.Capacity != 1<<30 || less.Available > 1<<30-300<<20 {
		t.Errorf("a node of 1 GiB whose pods use 300 MiB: %+v, %v", less, err)
	}
	if _, err := m.Signals(t.Context(), dir+"/none", runtime, used); err == nil {
		t.Error("measuring a directory that does not exist did not fail")
	}
}
