package housekeeping

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/kubelettest"
	"skiff/internal/kubelet/podlogs"
	"skiff/internal/kubelet/volume"
)

// onePod is a node whose only pod has the UID "u" and a worker. It records the orphans it is asked to remove.
type onePod struct{ orphans []types.UID }

func (p *onePod) List() ([]*corev1.Pod, error)      { return []*corev1.Pod{testPod()}, nil }
func (p *onePod) HasWorker(uid types.UID) bool      { return uid == "u" }
func (p *onePod) Running(uid types.UID) *corev1.Pod { return nil }
func (p *onePod) RemoveOrphan(uid types.UID)        { p.orphans = append(p.orphans, uid) }
func (p *onePod) VolumeUsage(context.Context, types.UID) ([]volume.Usage, error) {
	return nil, nil
}
func (p *onePod) Evict(context.Context, types.UID, string, bool) {}

func testPod() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "u"
	return pod
}

// fixture is housekeeping with an imaginary runtime that has one pod, none of whose loops run.
type fixture struct {
	*Manager
	runtime  *kubelettest.Runtime
	pods     *onePod
	logDir   string
	linksDir string
	sandbox  *runtimeapi.PodSandboxConfig
	id       string // the sandbox's
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{runtime: kubelettest.NewRuntime(), pods: &onePod{}, logDir: t.TempDir(), linksDir: t.TempDir()}
	f.runtime.AddImage(kubelettest.Image{Name: "nginx:latest", Size: 1000, Present: true})
	log := slog.New(slog.DiscardHandler)
	f.Manager = New(Options{Runtime: f.runtime, Pods: f.pods, RootDir: t.TempDir(), Log: log,
		Logs: podlogs.New(podlogs.Options{Runtime: f.runtime, Dir: f.logDir, LinksDir: f.linksDir, Log: log})})
	pod := testPod()
	dir := f.options.Logs.PodDir(pod)
	if err := os.MkdirAll(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.sandbox = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
		Labels: cri.PodLabels(pod), LogDirectory: dir}
	var err error
	if f.id, err = f.runtime.RunPodSandbox(t.Context(), f.sandbox, ""); err != nil {
		t.Fatal(err)
	}
	return f
}

// run starts container a, and has it exit if asked to.
func (f *fixture) run(t *testing.T, attempt uint32, exits bool) {
	t.Helper()
	pod, log := testPod(), filepath.Join("a", fmt.Sprintf("%d.log", attempt))
	id, err := f.runtime.CreateContainer(t.Context(), f.id, &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "a", Attempt: attempt},
		Image: &runtimeapi.ImageSpec{Image: "nginx:latest"}, Labels: cri.ContainerLabels(pod, "a"), LogPath: log}, f.sandbox)
	if err == nil {
		err = f.runtime.StartContainer(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.options.Logs.Link(pod, "a", id, filepath.Join(f.sandbox.LogDirectory, log))
	if exits {
		f.runtime.Exit(id, 1)
	}
}

// The latest exited run of each container is kept.
func TestSurplusExited(t *testing.T) {
	run := func(pod, name string, at int64, state runtimeapi.ContainerState) *runtimeapi.Container {
		return &runtimeapi.Container{Id: fmt.Sprintf("%s-%s-%d", pod, name, at), CreatedAt: at, State: state, Labels: map[string]string{cri.LabelPodUID: pod, cri.LabelContainer: name}}
	}
	const exited, running = runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_RUNNING
	var got []string
	for _, c := range surplusExited([]*runtimeapi.Container{run("p", "a", 1, exited), run("p", "a", 3, running), run("p", "a", 2, exited), run("p", "b", 1, exited), run("q", "a", 1, exited)}) {
		got = append(got, c.Id)
	}
	if want := []string{"p-a-1"}; !slices.Equal(got, want) {
		t.Errorf("surplus %v, want %v", got, want)
	}
}

// Unused images are removed until there is room, least recently used first; young ones stay, unless the node is short of disk.
func TestRemoveImages(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"old:1", "older:1", "young:1"} {
		f.runtime.AddImage(kubelettest.Image{Name: name, Size: 100, Present: true})
	}
	f.run(t, 0, false)
	images, inUse, err := f.listImages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hoursAgo := func(n int) time.Time { return time.Now().Add(time.Duration(-n) * time.Hour) }
	uses := map[string]imageUse{}
	for _, i := range images {
		uses[i.Id] = imageUse{firstSeen: hoursAgo(5), lastUsed: hoursAgo(1)}
	}
	uses["sha256:older:1"] = imageUse{firstSeen: hoursAgo(5), lastUsed: hoursAgo(3)}
	uses["sha256:young:1"] = imageUse{firstSeen: time.Now()}
	f.removeImages(t.Context(), images, inUse, uses, 100)
	left := func() (names []string) {
		list, err := f.runtime.ListImages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			names = append(names, i.RepoTags[0])
		}
		slices.Sort(names)
		return names
	}
	if got, want := left(), []string{"nginx:latest", "old:1", "young:1"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	f.removeUnusedImages(t.Context())
	if got, want := left(), []string{"nginx:latest"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
}

// Exited runs, links to logs, and logs of deleted pods are removed.
func TestGarbage(t *testing.T) {
	f := newFixture(t)
	f.run(t, 0, true)
	f.run(t, 1, true)
	if err := os.MkdirAll(filepath.Join(f.logDir, "default_gone_some-uid"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(f.linksDir, "gone.log")); err != nil {
		t.Fatal(err)
	}
	f.removeExitedContainers(t.Context())
	f.options.Logs.RemoveDangling(f.pods.HasWorker)
	if runs := f.runtime.Containers("u", "a"); len(runs) != 1 || runs[0].Config.Metadata.Attempt != 1 {
		t.Errorf("runs left: %+v", runs)
	}
	logs, _ := os.ReadDir(f.logDir)
	links, _ := os.ReadDir(f.linksDir)
	if len(logs) != 1 || len(links) != 1 {
		t.Errorf("left: logs %v, links %v", logs, links)
	}
}

// Pods that only the node has something of are orphans.
func TestFindOrphans(t *testing.T) {
	f := newFixture(t)
	for _, uid := range []string{"u", "directory"} {
		if err := os.MkdirAll(filepath.Join(f.options.RootDir, "pods", uid), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.options.Leftovers = []func() ([]types.UID, error){func() ([]types.UID, error) { return []types.UID{"u", "volume"}, nil }}
	f.FindOrphans(t.Context())
	slices.Sort(f.pods.orphans)
	if want := []types.UID{"directory", "volume"}; !slices.Equal(f.pods.orphans, want) {
		t.Errorf("orphans %v, want %v", f.pods.orphans, want)
	}
}
