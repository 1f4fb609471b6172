package kubelet

import (
	"testing"

	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/kubelettest"
)

// used is a cluster's groups, of which pods use so much memory.
type used struct {
	*kubelettest.Cgroups
	memory uint64
}

func (u used) PodsUsage() (cgroup.Usage, error) { return cgroup.Usage{WorkingSet: u.memory}, nil }

// What the machine has and has left makes sense; a node that is to have less than the machine has that, less what its pods use.
func TestMeasure(t *testing.T) {
	k := &Kubelet{options: Options{Runtime: kubelettest.NewRuntime(), RootDir: t.TempDir(), Cgroups: used{memory: 300 << 20}}}
	k.machine.memory = 1 << 60
	s, err := k.measureMachine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]eviction.Amount{"memory": s.Memory, "disk": s.NodeDisk, "image disk": s.ImageDisk, "inodes": s.NodeInodes, "PIDs": s.PIDs} {
		if a.Capacity <= 0 || a.Available <= 0 || a.Available > a.Capacity {
			t.Errorf("%s: %+v", name, a)
		}
	}
	k.machine.memory = 1 << 30
	less, err := k.measureMemory()
	if err != nil || less.Capacity != 1<<30 || less.Available > 1<<30-300<<20 {
		t.Errorf("of 1 GiB, with pods that use 300 MiB: %+v, %v", less, err)
	}
	k.options.RootDir += "/none"
	if _, err := k.measureMachine(t.Context()); err == nil {
		t.Error("a directory that is not there was measured")
	}
}
