package kubelet

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/kubelettest"
)

// rotation is a kubelet that does not run, so that nothing but the test rotates the log of its only container.
func rotation(t *testing.T) (k *Kubelet, c *runtimeapi.Container, path string) {
	t.Helper()
	r := kubelettest.NewRuntime()
	r.AddImage(kubelettest.Image{Name: "nginx", Present: true})
	k = &Kubelet{options: Options{Runtime: r, LogDir: t.TempDir()}}
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "u"
	dir := k.podLogDir(pod)
	path = filepath.Join(dir, "a", "0.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)}, Labels: cri.PodLabels(pod), LogDirectory: dir}
	in, err := r.RunPodSandbox(t.Context(), sandbox, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.CreateContainer(t.Context(), in, &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "a"}, Image: &runtimeapi.ImageSpec{Image: "nginx"},
		Labels: cri.ContainerLabels(pod, "a"), LogPath: filepath.Join("a", "0.log")}, sandbox)
	if err == nil {
		err = r.StartContainer(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.ListContainers(t.Context(), nil)
	if err != nil || len(list) != 1 || k.logPath(list[0]) != path {
		t.Fatal(list, err)
	}
	return k, list[0], path
}

// fill makes a log as large as one that is rotated.
func fill(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, maxLogSize+1), 0o640); err != nil {
		t.Fatal(err)
	}
}

// A log that is too large is rotated; the oldest files are removed, the others compressed, but for the newest. None is overwritten, although all
// are rotated within a second or two.
func TestRotate(t *testing.T) {
	k, c, path := rotation(t)
	for i := range 6 {
		fill(t, path)
		if err := k.rotate(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(path + ".*")
		if err != nil || len(files) != min(i+1, maxLogFiles-1) {
			t.Fatalf("after %d rotations: %v %v", i+1, files, err)
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

// TestRotateAtOnce rotates the log of one container by several goroutines at once.
func TestRotateAtOnce(t *testing.T) {
	k, c, path := rotation(t)
	for i := range 3 {
		fill(t, fmt.Sprintf("%s.20200101-00000%d", path, i))
	}
	for range 3 {
		fill(t, path)
		var rotations sync.WaitGroup
		for range 4 {
			rotations.Go(func() {
				if err := k.rotate(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
		rotations.Wait()
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != maxLogFiles {
		t.Errorf("%v %v", files, err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, ".gz") {
			if err := expand(f); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
}

// expand reports whether a compressed log is whole.
func expand(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, z)
	if err == nil && n != maxLogSize+1 {
		err = fmt.Errorf("it has %d bytes", n)
	}
	return err
}

// TestRotateWhileRemoved removes the logs of a pod while they are rotated: neither is an error.
func TestRotateWhileRemoved(t *testing.T) {
	for range 20 {
		k, c, path := rotation(t)
		fill(t, path+".20200101-000000")
		fill(t, path)
		var both sync.WaitGroup
		both.Go(func() {
			if err := trimLogs(k.logPath(c), maxLogFiles-2); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			for _, err := os.Lstat(path + ".20200101-000000.tmp"); err != nil; _, err = os.Lstat(path + ".20200101-000000.tmp") {
				if _, err := os.Lstat(path + ".20200101-000000.gz"); err == nil {
					break // it was quicker
				}
			}
			if err := os.RemoveAll(filepath.Dir(filepath.Dir(path))); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
				t.Error(err)
			}
		})
		both.Wait()
	}
}

// TestFullLogsAreRotated has a running kubelet find a full log by itself.
func TestFullLogsAreRotated(t *testing.T) {
	w := newWorld(t)
	pod := w.create("web", "{containers: [{name: a, image: nginx}]}")
	w.await("web", ready)
	path := filepath.Join(w.kubelet.podLogDir(pod), "a", "0.log")
	fill(t, path)
	w.eventually(func() string {
		files, err := filepath.Glob(path + ".*")
		if err != nil || len(files) != 1 {
			return fmt.Sprintf("rotated: %v %v", files, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > 0 {
			return fmt.Sprintf("the log was not reopened: %v", err)
		}
		return ""
	})
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
