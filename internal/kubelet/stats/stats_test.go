package stats

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/volume"
)

// fixture is a node on which time passes when the test says so. Everything on it uses half a processor.
type fixture struct {
	clock *clocktesting.FakeClock
	boot  time.Time
	dir   string

	mu         sync.Mutex
	calls      map[string]int
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	gone       map[string]bool // groups that are not there any more
	volumes    []volume.Usage
	pods       []*corev1.Pod
	old        bool // the runtime has no statistics of sandboxes
	failing    error
}

func newFixture(t *testing.T) (*fixture, *Provider) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := &fixture{clock: clocktesting.NewFakeClock(start), boot: start.Add(-time.Hour), dir: t.TempDir(), calls: map[string]int{}, gone: map[string]bool{}}
	p := New(Options{NodeName: "n1", Runtime: w, Cgroups: w, Volumes: volumes{w}, Pods: w, Machine: w, RootDir: filepath.Join(w.dir, "kubelet"), LogDir: filepath.Join(w.dir, "logs"), Clock: w.clock})
	return w, p
}

func (w *fixture) count(call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[call]++
}

func (w *fixture) called(call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[call]
}

// run adds a pod with containers, made now.
func (w *fixture) run(name string, containers ...string) {
	now := w.clock.Now().UnixNano()
	uid := "uid-" + name
	labels := map[string]string{cri.LabelPodUID: uid}
	w.sandboxes = append(w.sandboxes, &runtimeapi.PodSandbox{Id: "sandbox-" + name, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: now, Labels: labels,
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: uid}})
	for _, c := range containers {
		w.containers = append(w.containers, &runtimeapi.Container{Id: name + "-" + c, PodSandboxId: "sandbox-" + name, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			CreatedAt: now, Metadata: &runtimeapi.ContainerMetadata{Name: c}})
	}
}

func (w *fixture) ListPodSandboxes(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	w.count("sandboxes")
	return slices.Clone(w.sandboxes), w.failing
}

func (w *fixture) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return slices.Clone(w.containers), nil
}

func (w *fixture) stats() (out []*runtimeapi.ContainerStats) {
	for _, c := range w.containers {
		out = append(out, &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{Id: c.Id}, WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: w.clock.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}, UsedBytes: value(4096), InodesUsed: value(2)}})
	}
	return out
}

func (w *fixture) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	w.count("sandbox stats")
	if w.old {
		return nil, status.Error(codes.Unimplemented, "unknown method ListPodSandboxStats")
	}
	var out []*runtimeapi.PodSandboxStats
	for i, s := range w.sandboxes {
		linux := &runtimeapi.LinuxPodSandboxStats{Network: &runtimeapi.NetworkUsage{Timestamp: w.clock.Now().UnixNano(),
			DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: value(100), RxErrors: value(1), TxBytes: value(200), TxErrors: value(2)}}}
		if i == 0 {
			linux.Containers = w.stats()
		}
		out = append(out, &runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{Id: s.Id, Metadata: s.Metadata}, Linux: linux})
	}
	return out, nil
}

func (w *fixture) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return w.stats(), nil
}

func (w *fixture) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{Timestamp: w.clock.Now().UnixNano(),
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}, UsedBytes: value(7 << 20), InodesUsed: value(70)}}}, nil
}

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

func (w *fixture) usage(key string, since time.Time) (cgroup.Usage, error) {
	if w.gone[key] {
		return cgroup.Usage{}, cgroup.ErrNotFound
	}
	now := w.clock.Now()
	return cgroup.Usage{Time: now, CPU: now.Sub(since) / 2, Memory: 300, WorkingSet: 200, RSS: 100, PageFaults: 9, MajorPageFaults: 3, Processes: 4}, nil
}

func (w *fixture) NodeUsage() (cgroup.Usage, error) {
	w.count("node")
	return w.usage("node", w.boot)
}
func (w *fixture) PodsUsage() (cgroup.Usage, error) { return w.usage("pods", w.boot) }
func (w *fixture) Usage(uid types.UID) (cgroup.Usage, error) {
	for _, s := range w.sandboxes {
		if s.Metadata.Uid == string(uid) {
			return w.usage(string(uid), time.Unix(0, s.CreatedAt))
		}
	}
	return cgroup.Usage{}, cgroup.ErrNotFound
}
func (w *fixture) ContainerUsage(_ types.UID, id string) (cgroup.Usage, error) {
	for _, c := range w.containers {
		if c.Id == id {
			u, err := w.usage(id, time.Unix(0, c.CreatedAt))
			u.MemoryLimit = 1000
			return u, err
		}
	}
	return cgroup.Usage{}, cgroup.ErrNotFound
}

type volumes struct{ *fixture }

func (v volumes) Usage(context.Context, types.UID) ([]volume.Usage, error) {
	v.count("volumes")
	return v.volumes, nil
}

func (w *fixture) Pods() []*corev1.Pod                { return w.pods }
func (w *fixture) BootTime() time.Time                { return w.boot }
func (w *fixture) Memory() (total, swap, huge uint64) { return 10000, 0, 1000 }
func (w *fixture) FileSystem(dir string) (FileSystem, error) {
	return FileSystem{Capacity: 1 << 30, Free: 1 << 29, Available: 1 << 28, Inodes: 1000, InodesFree: 900}, nil
}
func (w *fixture) Network() (Network, error) {
	return Network{Default: "ens3", Interfaces: []Interface{{Name: "cni0"}, {Name: "ens3", RxBytes: 5}}}, nil
}
func (w *fixture) Tasks() (running, limit int64, err error) { return 321, 32768, nil }

// ask asks, and lets the time pass that two samples must be apart.
func (w *fixture) ask(t *testing.T, p *Provider, only bool) *statsapi.Summary {
	t.Helper()
	type answer struct {
		*statsapi.Summary
		err error
	}
	done := make(chan answer)
	go func() {
		s, err := p.Summary(t.Context(), only)
		done <- answer{s, err}
	}()
	for {
		select {
		case a := <-done:
			if a.err != nil {
				t.Fatal(a.err)
			}
			return a.Summary
		case <-time.After(time.Millisecond):
			if w.clock.HasWaiters() {
				w.clock.Step(firstWindow)
			}
		}
	}
}

func TestSummary(t *testing.T) {
	w, p := newFixture(t)
	w.run("web", "nginx")
	w.pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
	}}}}
	w.volumes = []volume.Usage{{Volume: "data", Used: 1 << 20, Capacity: 1 << 30}, {Volume: "memory", Used: 1 << 21, InodesUsed: 7}, {Volume: "scratch", Used: 512, InodesUsed: 3}}
	logs := filepath.Join(w.dir, "logs", "default_web_uid-web", "nginx")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(logs, "0.log"), make([]byte, 10000), 0o644); err != nil {
		t.Fatal(err)
	}
	logged := file(filepath.Join(logs, "0.log"))

	s := w.ask(t, p, false)
	n := s.Node
	check(t, "node name", n.NodeName, "n1")
	check(t, "node start", n.StartTime.Time, w.boot)
	check(t, "node cpu rate", *n.CPU.UsageNanoCores, 500_000_000)
	check(t, "node cpu", *n.CPU.UsageCoreNanoSeconds, uint64((time.Hour+firstWindow)/2))
	check(t, "node memory available", *n.Memory.AvailableBytes, 10000-200-1000)
	check(t, "node memory", [3]uint64{*n.Memory.UsageBytes, *n.Memory.WorkingSetBytes, *n.Memory.RSSBytes}, [3]uint64{300, 200, 100})
	check(t, "node faults", [2]uint64{*n.Memory.PageFaults, *n.Memory.MajorPageFaults}, [2]uint64{9, 3})
	check(t, "node interface", n.Network.Name, "ens3")
	check(t, "node interfaces", len(n.Network.Interfaces), 2)
	check(t, "node fs", [3]uint64{*n.Fs.CapacityBytes, *n.Fs.AvailableBytes, *n.Fs.UsedBytes}, [3]uint64{1 << 30, 1 << 28, 1 << 29})
	check(t, "node inodes", [3]uint64{*n.Fs.Inodes, *n.Fs.InodesFree, *n.Fs.InodesUsed}, [3]uint64{1000, 900, 100})
	check(t, "images", [2]uint64{*n.Runtime.ImageFs.UsedBytes, *n.Runtime.ContainerFs.CapacityBytes}, [2]uint64{7 << 20, 1 << 30})
	check(t, "tasks", [2]int64{*n.Rlimit.NumOfRunningProcesses, *n.Rlimit.MaxPID}, [2]int64{321, 32768})
	check(t, "system container", n.SystemContainers[0].Name, "pods")

	if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 {
		t.Fatalf("pods: %+v", s.Pods)
	}
	pod, c := s.Pods[0], s.Pods[0].Containers[0]
	check(t, "pod", pod.PodRef, statsapi.PodReference{Name: "web", Namespace: "default", UID: "uid-web"})
	check(t, "pod cpu rate", *pod.CPU.UsageNanoCores, 500_000_000)
	check(t, "pod memory available", pod.Memory.AvailableBytes, nil)
	check(t, "pod processes", *pod.ProcessStats.ProcessCount, 4)
	check(t, "pod network", [4]uint64{*pod.Network.RxBytes, *pod.Network.RxErrors, *pod.Network.TxBytes, *pod.Network.TxErrors}, [4]uint64{100, 1, 200, 2})
	check(t, "pod interfaces", len(pod.Network.Interfaces), 1)
	check(t, "container", c.Name, "nginx")
	check(t, "container memory available", *c.Memory.AvailableBytes, 800)
	check(t, "container layer", [3]uint64{*c.Rootfs.UsedBytes, *c.Rootfs.InodesUsed, *c.Rootfs.CapacityBytes}, [3]uint64{4096, 2, 1 << 30})
	check(t, "container logs", [2]uint64{*c.Logs.UsedBytes, *c.Logs.InodesUsed}, [2]uint64{logged.bytes, 1})
	check(t, "ephemeral storage", [2]uint64{*pod.EphemeralStorage.UsedBytes, *pod.EphemeralStorage.InodesUsed}, [2]uint64{4096 + 512 + logged.bytes, 2 + 3 + 1})
	check(t, "volumes", len(pod.VolumeStats), 3)
	check(t, "claim", *pod.VolumeStats[0].PVCRef, statsapi.PVCReference{Name: "claim", Namespace: "default"})
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

func TestOnlyCPUAndMemory(t *testing.T) {
	w, p := newFixture(t)
	w.run("web", "nginx")
	s := w.ask(t, p, true)
	if w.called("sandbox stats") != 0 || s.Node.Fs != nil || s.Node.Network != nil || s.Pods[0].EphemeralStorage != nil || s.Pods[0].Containers[0].Rootfs != nil {
		t.Errorf("more was looked at than asked for: %+v", s)
	}
	check(t, "container memory", *s.Pods[0].Containers[0].Memory.WorkingSetBytes, 200)
}

// What was measured a moment ago is not measured again; what runs since is in it all the same.
func TestCost(t *testing.T) {
	w, p := newFixture(t)
	w.run("web", "nginx")
	w.ask(t, p, false)
	reads := w.called("node")
	for range 10 {
		w.ask(t, p, false)
	}
	check(t, "reads in the same second", w.called("node"), reads)
	check(t, "looks at disks", w.called("volumes"), 1)
	w.clock.Step(2 * time.Second)
	w.ask(t, p, false)
	check(t, "reads two seconds later", w.called("node"), reads+1)
	check(t, "looks at disks two seconds later", w.called("volumes"), 1)
	w.run("new", "main")
	w.clock.Step(2 * time.Second)
	s := w.ask(t, p, false)
	check(t, "looks at disks for another pod", w.called("volumes"), 3)
	if s.Pods[0].PodRef.Name != "new" || s.Pods[0].Network == nil || s.Pods[0].Containers[0].Rootfs == nil {
		t.Errorf("the new pod is not all there: %+v", s.Pods[0])
	}
	w.clock.Step(diskTTL)
	w.ask(t, p, false)
	check(t, "looks at disks ten seconds later", w.called("volumes"), 5)
}

// A rate is of the last seconds, however often one asks, and nothing is kept of what has ended.
func TestRates(t *testing.T) {
	w, p := newFixture(t)
	w.run("a", "main")
	w.ask(t, p, true)
	w.clock.Step(20 * time.Second)
	w.run("b", "main")
	w.clock.Step(time.Second)
	for _, pod := range w.ask(t, p, true).Pods {
		check(t, "rate of "+pod.PodRef.Name, *pod.CPU.UsageNanoCores, 500_000_000)
		check(t, "rate of the container of "+pod.PodRef.Name, *pod.Containers[0].CPU.UsageNanoCores, 500_000_000)
	}
	for range 20 {
		w.clock.Step(time.Second)
		w.ask(t, p, true)
		for key, r := range p.rates {
			if d := w.clock.Since(r.newer.at); d > minWindow {
				t.Fatalf("the newer sample of %s is %v old", key, d)
			}
			if d := w.clock.Since(r.older.at); !r.older.at.IsZero() && d > 30*time.Second {
				t.Fatalf("the older sample of %s is %v old", key, d)
			}
		}
	}
	check(t, "groups", len(p.rates), 6)
	w.sandboxes, w.containers = w.sandboxes[:1], w.containers[:1]
	w.clock.Step(time.Second)
	w.ask(t, p, true)
	check(t, "groups after one pod ended", len(p.rates), 4)

	// Long after the last question the rate is not of all that time.
	w.clock.Step(time.Hour)
	w.ask(t, p, true)
	for key, r := range p.rates {
		if d := w.clock.Since(r.newer.at); d > minWindow {
			t.Errorf("the sample of %s is %v old", key, d)
		}
	}
}

func TestWhatEnds(t *testing.T) {
	w, p := newFixture(t)
	w.run("a", "main", "side")
	w.run("b", "main")
	w.sandboxes = append(w.sandboxes, &runtimeapi.PodSandbox{Id: "other", Labels: map[string]string{cri.LabelPodUID: "uid-old"}, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "old", Uid: "uid-old"}})
	w.gone["uid-b"], w.gone["a-side"] = true, true
	s := w.ask(t, p, true)
	if len(s.Pods) != 1 || s.Pods[0].PodRef.Name != "a" || len(s.Pods[0].Containers) != 1 || s.Pods[0].Containers[0].Name != "main" {
		t.Errorf("pods: %+v", s.Pods)
	}
}

func TestOldRuntime(t *testing.T) {
	w, p := newFixture(t)
	w.old = true
	w.run("web", "nginx")
	pod := w.ask(t, p, false).Pods[0]
	if pod.Network != nil || pod.Containers[0].Rootfs == nil {
		t.Errorf("network is %v, layer %v", pod.Network, pod.Containers[0].Rootfs)
	}
}

func TestFailures(t *testing.T) {
	w, p := newFixture(t)
	w.failing = errors.New("runtime is down")
	if _, err := p.Summary(t.Context(), true); err == nil || !strings.Contains(err.Error(), "runtime is down") {
		t.Errorf("err = %v", err)
	}
	w.failing = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Summary(ctx, false); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	w.ask(t, p, true) // and nothing is stuck
}

func TestManyAsk(t *testing.T) {
	w, p := newFixture(t)
	w.run("web", "nginx")
	w.ask(t, p, false)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			s, err := p.Summary(t.Context(), false)
			if err != nil {
				t.Error(err)
				return
			}
			*s.Node.Memory.UsageBytes = 0 // it is ours
			*s.Pods[0].CPU.UsageNanoCores = 0
		})
	}
	wg.Wait()
	if s := w.ask(t, p, false); *s.Node.Memory.UsageBytes == 0 || *s.Pods[0].CPU.UsageNanoCores == 0 {
		t.Error("one who asked changed what another was told")
	}
}

func check[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}
