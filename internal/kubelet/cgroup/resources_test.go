package cgroup

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/mounts"
)

func TestConversions(t *testing.T) {
	for milli, want := range map[int64]uint64{0: 2, 1: 2, 2: 2, 3: 3, 100: 102, 250: 256, 1000: 1024, 1500: 1536, 256000: 262144, 300000: 262144} {
		if got := MilliCPUToShares(milli); got != want {
			t.Errorf("%dm are %d shares, want %d", milli, got, want)
		}
	}
	for _, c := range []struct{ milli, period, want int64 }{{0, 100000, 0}, {1, 100000, 1000}, {5, 100000, 1000}, {9, 100000, 1000}, {10, 100000, 1000},
		{200, 100000, 20000}, {500, 100000, 50000}, {1000, 100000, 100000}, {1500, 100000, 150000}, {500, 5000, 2500}, {10, 5000, 1000}} {
		if got := MilliCPUToQuota(c.milli, c.period); got != c.want {
			t.Errorf("%dm in %d µs are %d µs, want %d", c.milli, c.period, got, c.want)
		}
	}
	for shares, want := range map[uint64]uint64{0: 1, 2: 1, 1024: 39, 2048: 79, 262144: 10000, 300000: 10000} {
		if got := SharesToWeight(shares); got != want {
			t.Errorf("%d shares are the weight %d, want %d", shares, got, want)
		}
	}
	for _, milli := range []int64{0, 10, 100, 250, 999, 1000, 64000} {
		if got := sharesToMilliCPU(MilliCPUToShares(milli)); got < milli-1 || got > milli+1 {
			t.Errorf("%dm come back from shares as %dm", milli, got)
		}
		if got := sharesToMilliCPU(weightToShares(SharesToWeight(MilliCPUToShares(milli)))); got < milli-26 || got > milli+26 {
			t.Errorf("%dm come back from a weight as %dm", milli, got)
		}
	}
	for size, want := range map[int64]string{64 << 10: "64KB", 2 << 20: "2MB", 1 << 30: "1GB", 16 << 30: "16GB", 512 << 20: "512MB"} {
		if got := pageName(size); got != want {
			t.Errorf("pages of %d bytes are called %s, want %s", size, got, want)
		}
	}
}

func TestPodResources(t *testing.T) {
	two := func(a, b string) *corev1.Pod {
		pod := newPod("u", a)
		pod.Spec.Containers = append(pod.Spec.Containers, newPod("u", b).Spec.Containers...)
		return pod
	}
	whole := newPod("u", "cpu=100m/-")
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		Limits: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("100Mi")}}
	initial := newPod("u", "cpu=100m/100m memory=1Mi/1Mi")
	initial.Spec.InitContainers = newPod("u", "").Spec.Containers
	overhead := newPod("u", "cpu=100m/200m memory=1Mi/2Mi")
	overhead.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Mi")}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		opts Options
		want resources
	}{
		"best effort":                       {newPod("u", ""), Options{}, resources{shares: 2}},
		"burstable, no limits":              {newPod("u", "cpu=100m/- memory=1Mi/-"), Options{}, resources{shares: 102}},
		"burstable, limits of both":         {newPod("u", "cpu=100m/200m memory=1Mi/2Mi"), Options{}, resources{shares: 102, quota: 20000, period: 100000, memory: 2 << 20}},
		"burstable, only memory is limited": {newPod("u", "memory=1Mi/2Mi"), Options{}, resources{shares: 2, memory: 2 << 20}},
		"one container has no limits":       {two("cpu=100m/200m memory=1Mi/2Mi", "cpu=100m/-"), Options{}, resources{shares: 204}},
		"an init container has no limits":   {initial, Options{}, resources{shares: 102}},
		"guaranteed":                        {two("cpu=1/1 memory=1Mi/1Mi", "cpu=1/1 memory=1Mi/1Mi"), Options{}, resources{shares: 2048, quota: 200000, period: 100000, memory: 2 << 20}},
		"limits of the pod as a whole":      {whole, Options{}, resources{shares: 1024, quota: 200000, period: 100000, memory: 100 << 20}},
		"overhead counts":                   {overhead, Options{}, resources{shares: 204, quota: 30000, period: 100000, memory: 3 << 20}},
		"processes":                         {newPod("u", ""), Options{PodPidsLimit: 7}, resources{shares: 2, pids: 7}},
		"no quota":                          {newPod("u", "cpu=1/1 memory=1Mi/1Mi"), Options{NoCPUQuota: true}, resources{shares: 1024, quota: -1, period: 100000, memory: 1 << 20}},
		"another period":                    {newPod("u", "cpu=1/1 memory=1Mi/1Mi"), Options{CPUPeriod: 10 * time.Millisecond}, resources{shares: 1024, quota: 10000, period: 10000, memory: 1 << 20}},
		"huge pages": {newPod("u", "cpu=1/1 memory=1Mi/1Mi hugepages-2Mi=4Mi/4Mi"), Options{},
			resources{shares: 1024, quota: 100000, period: 100000, memory: 1 << 20, hugePages: map[int64]int64{2 << 20: 4 << 20}}},
	} {
		m := fakeV2(t, c.opts)
		if c.want.hugePages == nil {
			c.want.hugePages = map[int64]int64{}
		}
		if got := m.podResources(c.pod); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// fakeV2 returns a manager of v2 over plain files, for machines whose controllers are in v1.
func fakeV2(t *testing.T, opts Options) *Manager {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpuset cpu io memory hugetlb pids rdma\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	opts.Hierarchies = []Hierarchy{{Dir: dir, V2: true}}
	m, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	m.remove = os.RemoveAll
	m.pageSizes = []int64{2 << 20}
	return m
}

// grow stands in for the kernel, which fills groups with files when they are made.
func grow(t *testing.T, m *Manager, path string, files map[string]string) {
	t.Helper()
	dir := filepath.Join(m.hierarchies[0].Dir, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestVersion2(t *testing.T) {
	m := fakeV2(t, Options{PodPidsLimit: 50, Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("1Gi")}})
	if m.Version() != 2 {
		t.Fatalf("version %d", m.Version())
	}
	has := map[string]string{"cgroup.controllers": "cpuset cpu memory hugetlb pids", "hugetlb.2MB.max": "max", "hugetlb.2MB.rsvd.max": "max"}
	grow(t, m, "/kubepods", has)
	grow(t, m, "/kubepods/burstable", has)
	grow(t, m, "/kubepods/besteffort", has)
	grow(t, m, "/kubepods/podg-1", has)
	if err := m.Setup(); err != nil {
		t.Fatal(err)
	}
	path, err := m.Ensure(newPod("g-1", "cpu=1/1 memory=64Mi/64Mi hugepages-2Mi=4Mi/4Mi"))
	if err != nil || path != "/kubepods/podg-1" {
		t.Fatalf("%s, %v", path, err)
	}
	grow(t, m, "/kubepods/burstable/podb", has)
	if _, err := m.Ensure(newPod("b", "cpu=2/-")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, file, want string }{
		{"/", "cgroup.subtree_control", "+cpuset +cpu +memory +hugetlb +pids"},
		{"/kubepods", "cgroup.subtree_control", "+cpuset +cpu +memory +hugetlb +pids"},
		{"/kubepods", "cpu.weight", "157"},
		{"/kubepods", "memory.max", "1073741824"},
		{"/kubepods", "hugetlb.2MB.max", "4611686018427387904"},
		{"/kubepods/besteffort", "cpu.weight", "1"},
		{"/kubepods/burstable", "cpu.weight", "79"},
		{path, "cpu.weight", "39"},
		{path, "cpu.max", "100000 100000"},
		{path, "memory.max", "67108864"},
		{path, "pids.max", "50"},
		{path, "hugetlb.2MB.max", "4194304"},
		{path, "hugetlb.2MB.rsvd.max", "4194304"},
	} {
		got, err := os.ReadFile(filepath.Join(m.hierarchies[0].Dir, c.path, c.file))
		if err != nil || string(got) != c.want {
			t.Errorf("%s/%s is %q, want %q (%v)", c.path, c.file, got, c.want, err)
		}
	}
	grow(t, m, path+"/abc", map[string]string{"cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "memory.current": "1000\n", "memory.max": "max\n",
		"memory.stat": "anon 300\nfile 600\ninactive_file 400\npgfault 12\npgmajfault 3\n", "memory.swap.current": "7\n", "pids.current": "2\n"})
	u, err := m.ContainerUsage("g-1", "abc")
	u.Time = time.Time{}
	want := Usage{CPU: 1500 * time.Microsecond, Memory: 1000, WorkingSet: 600, RSS: 300, Swap: 7, PageFaults: 12, MajorPageFaults: 3, Processes: 2}
	if err != nil || u != want {
		t.Errorf("the container uses %+v, want %+v (%v)", u, want, err)
	}
	grow(t, m, "/", map[string]string{"cpu.stat": "usage_usec 2000\n", "memory.stat": "anon 300\ninactive_file 4096\n"})
	if u, err := m.NodeUsage(); err != nil || u.CPU != 2*time.Millisecond || u.Memory == 0 || u.WorkingSet != u.Memory-4096 {
		t.Errorf("the node uses %+v (%v)", u, err)
	}
	if left, err := m.Left(); err != nil || !slices.Equal(left, []types.UID{"b", "g-1"}) {
		t.Errorf("left: %v %v", left, err)
	}
	if err := m.RemoveAll(); err != nil {
		t.Fatal(err)
	}
	if killed, err := os.ReadDir(m.hierarchies[0].Dir); err != nil || slices.ContainsFunc(killed, func(e os.DirEntry) bool { return e.IsDir() }) {
		t.Errorf("left on disk: %v %v", killed, err)
	}
}

func TestSystemdNames(t *testing.T) {
	m := fakeV2(t, Options{Systemd: true})
	pod := newPod("1234-abcd-5678-efgh", "cpu=1/-")
	if got, want := m.Parent(pod), "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd_5678_efgh.slice"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	below := fakeV2(t, Options{Systemd: true, Root: "/skiff/one-two"})
	if got, want := below.Parent(newPod("x-y", "cpu=1/1 memory=1/1")), "/skiff.slice/skiff-one_two.slice/skiff-one_two-kubepods.slice/skiff-one_two-kubepods-podx_y.slice"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := below.rootPath(), "/skiff.slice/skiff-one_two.slice"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	grow(t, m, m.Parent(pod), nil)
	grow(t, m, m.Parent(newPod("g-h", "cpu=1/1 memory=1/1")), nil)
	grow(t, m, "/kubepods.slice/other.slice", nil)
	if left, err := m.Left(); err != nil || !slices.Equal(left, []types.UID{"1234-abcd-5678-efgh", "g-h"}) {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestMounts(t *testing.T) {
	hybrid := []byte(`25 24 0:22 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
28 25 0:25 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset,noprefix
29 25 0:26 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
30 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
31 24 0:24 / /var/lib/other/a\040long/memory rw - cgroup cgroup rw,memory
`)
	found := findHierarchies(mounts.Parse(hybrid))
	want := []Hierarchy{{Dir: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}}, {Dir: "/sys/fs/cgroup/cpuset", Controllers: []string{"cpuset"}},
		{Dir: "/sys/fs/cgroup/memory", Controllers: []string{"memory"}}, {Dir: "/sys/fs/cgroup/systemd", Controllers: []string{"name=systemd"}},
		{Dir: "/sys/fs/cgroup/unified", V2: true}}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("found %+v, want %+v", found, want)
	}
	if v, err := version(found); v != 1 || err != nil {
		t.Errorf("hybrid is version %d, %v", v, err)
	}
	if v, err := version(findHierarchies(mounts.Parse([]byte("30 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 25 0:1 / /x rw - cgroup cgroup rw,name=systemd\n")))); v != 2 || err != nil {
		t.Errorf("unified is version %d, %v", v, err)
	}
	if _, err := version(found[:2]); err == nil {
		t.Error("a machine without control groups for memory is good enough")
	}
	if _, err := version(nil); err == nil {
		t.Error("a machine without control groups is good enough")
	}
}
