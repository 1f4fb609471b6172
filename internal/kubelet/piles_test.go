package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/kubelettest"
)

// A log that is too large is rotated; the oldest files are removed, the others compressed, but for the newest.
func TestRotate(t *testing.T) {
	w := newWorld(t)
	pod := w.create("web", "{containers: [{name: a, image: nginx}]}")
	w.await("web", ready)
	path := filepath.Join(w.kubelet.podLogDir(pod), "a", "0.log")
	rotate := func() {
		t.Helper()
		if err := os.WriteFile(path, make([]byte, maxLogSize+1), 0o640); err != nil {
			t.Fatal(err)
		}
		list, err := w.runtime.ListContainers(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.kubelet.rotate(t.Context(), list[0]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 6 {
		rotate()
		files, err := filepath.Glob(path + ".*")
		if err != nil {
			t.Fatal(err)
		}
		for j, f := range files { // as if it had taken longer
			if strings.Contains(f, time.Now().Format("20060102")) {
				older := fmt.Sprintf("%s.20200101-0000%02d%s", path, i*6+j, map[bool]string{true: ".gz"}[strings.HasSuffix(f, ".gz")])
				if err := os.Rename(f, older); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	compressed := 0
	for _, f := range files {
		if strings.HasSuffix(f, ".gz") {
			compressed++
		}
	}
	if len(files) != maxLogFiles || compressed != maxLogFiles-2 {
		t.Errorf("%d files, %d compressed: %v", len(files), compressed, files)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 0 {
		t.Errorf("the log was not reopened: %v %v", info, err)
	}
}

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
	w.kubelet.removeDanglingLogs()
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

// The node's images are told, the largest first.
func TestNodeImages(t *testing.T) {
	w := newWorld(t)
	w.runtime.AddImage(kubelettest.Image{Name: "big:1", Size: 1 << 30, Present: true})
	w.kubelet.node.mu.Lock()
	w.kubelet.node.imagesAt = time.Time{}
	w.kubelet.node.mu.Unlock()
	var images []corev1.ContainerImage
	w.eventually(func() string {
		if images = w.kubelet.nodeImages(t.Context()); len(images) < 2 {
			return "images are missing"
		}
		return ""
	})
	if images[0].Names[0] != "big:1" || images[0].SizeBytes != 1<<30 {
		t.Errorf("images %+v", images)
	}
}
