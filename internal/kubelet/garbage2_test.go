package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/kubelettest"
)

// Of the runs of a container that ended the last is kept.
func TestTooMany(t *testing.T) {
	run := func(pod, name string, at int64, state runtimeapi.ContainerState) *runtimeapi.Container {
		return &runtimeapi.Container{Id: fmt.Sprintf("%s-%s-%d", pod, name, at), CreatedAt: at, State: state, Labels: map[string]string{cri.LabelPodUID: pod, cri.LabelContainer: name}}
	}
	const ended, running = runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_RUNNING
	var got []string
	for _, c := range tooMany([]*runtimeapi.Container{run("p", "a", 1, ended), run("p", "a", 3, running), run("p", "a", 2, ended), run("p", "b", 1, ended), run("q", "a", 1, ended)}) {
		got = append(got, c.Id)
	}
	if want := []string{"p-a-1"}; !slices.Equal(got, want) {
		t.Errorf("too many are %v, want %v", got, want)
	}
}

// Images that nobody uses are removed until there is room, those not used for longest first; pinned ones and young ones stay.
func TestRemoveImages(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"old:1", "older:1", "young:1"} {
		w.runtime.AddImage(kubelettest.Image{Name: name, Size: 100, Present: true})
	}
	w.create("web", "{containers: [{name: a, image: nginx}]}")
	w.await("web", ready)
	images, used, err := w.kubelet.imagesInUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hour := func(n int) time.Time { return time.Now().Add(time.Duration(-n) * time.Hour) }
	seen := map[string]imageUse{}
	for _, i := range images {
		seen[i.Id] = imageUse{found: hour(5), used: hour(1)}
	}
	seen["sha256:older:1"] = imageUse{found: hour(5), used: hour(3)}
	seen["sha256:young:1"] = imageUse{found: time.Now()}
	w.kubelet.removeLeastUsed(t.Context(), images, used, seen, 100)
	left := func() (out []string) {
		list, err := w.runtime.ListImages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			out = append(out, i.RepoTags[0])
		}
		slices.Sort(out)
		return out
	}
	if got, want := left(), []string{"nginx:latest", "old:1", "young:1"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	w.kubelet.removeUnusedImages(t.Context())
	if got, want := left(), []string{"nginx:latest"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
}

// Dead runs, links and logs of pods that are gone do not pile up.
func TestGarbage(t *testing.T) {
	w := newWorld(t)
	w.runtime.Script("a", kubelettest.Script{EndsItself: true, Runs: time.Millisecond, ExitCode: 1})
	pod := w.create("web", "{containers: [{name: a, image: nginx}]}")
	w.await("web", waitingFor("CrashLoopBackOff"))
	if n := len(w.runtime.Containers(pod.UID, "a")); n != 2 {
		t.Fatalf("%d runs", n)
	}
	for _, dir := range []string{"default_gone_some-uid"} {
		if err := os.MkdirAll(filepath.Join(w.kubelet.options.LogDir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/nowhere", filepath.Join(w.kubelet.options.ContainerLogDir, "gone.log")); err != nil {
		t.Fatal(err)
	}
	w.kubelet.removeDeadContainers(t.Context())
	w.kubelet.logs.RemoveDangling(w.kubelet.knows)
	if n := len(w.runtime.Containers(pod.UID, "a")); n != 1 {
		t.Errorf("%d runs are left", n)
	}
	logs, _ := os.ReadDir(w.kubelet.options.LogDir)
	links, _ := os.ReadDir(w.kubelet.options.ContainerLogDir)
	if len(logs) != 1 || len(links) != 1 {
		t.Errorf("left: logs %v, links %v", logs, links)
	}
	if p := w.get("web"); p.Status.ContainerStatuses[0].RestartCount != 1 {
		t.Errorf("restart count %d", p.Status.ContainerStatuses[0].RestartCount)
	}
}
