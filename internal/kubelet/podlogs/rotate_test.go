package podlogs

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/kubelettest"
)

// newRotation returns a manager that does not run, so that only the test rotates the log of the runtime's only container.
func newRotation(t *testing.T) (m *Manager, c *runtimeapi.Container, path string) {
	t.Helper()
	r := kubelettest.NewRuntime()
	r.AddImage(kubelettest.Image{Name: "nginx", Present: true})
	m = New(Options{Runtime: r, Dir: t.TempDir()})
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "u"
	dir := m.PodDir(pod)
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
	if err != nil || len(list) != 1 || m.path(list[0]) != path {
		t.Fatal(list, err)
	}
	return m, list[0], path
}

// fill makes a log larger than maxSize.
func fill(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, maxSize+1), 0o640); err != nil {
		t.Fatal(err)
	}
}

// A full log is rotated; the oldest files are removed, the others compressed, except the newest. None is overwritten, although all are rotated within
// a second or two.
func TestRotate(t *testing.T) {
	m, c, path := newRotation(t)
	for i := range 6 {
		fill(t, path)
		if err := m.rotate(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(path + ".*")
		if err != nil || len(files) != min(i+1, maxFiles-1) {
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
	if len(files) != maxFiles || compressed != maxFiles-2 {
		t.Errorf("%d files, %d compressed: %v", len(files), compressed, files)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 0 {
		t.Errorf("the log was not reopened: %v %v", info, err)
	}
}

// TestRotateAtOnce rotates the log of one container by several goroutines at once.
func TestRotateAtOnce(t *testing.T) {
	m, c, path := newRotation(t)
	for i := range 3 {
		fill(t, fmt.Sprintf("%s.20200101-00000%d", path, i))
	}
	for range 3 {
		fill(t, path)
		var rotations sync.WaitGroup
		for range 4 {
			rotations.Go(func() {
				if err := m.rotate(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
		rotations.Wait()
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != maxFiles {
		t.Errorf("%v %v", files, err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, ".gz") {
			if err := checkCompressed(f); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
}

// checkCompressed returns an error if a compressed log is not whole.
func checkCompressed(name string) error {
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
	if err == nil && n != maxSize+1 {
		err = fmt.Errorf("it has %d bytes", n)
	}
	return err
}

// TestRotateWhileRemoved removes the logs of a pod while they are rotated: neither is an error.
func TestRotateWhileRemoved(t *testing.T) {
	for range 20 {
		m, c, path := newRotation(t)
		fill(t, path+".20200101-000000")
		fill(t, path)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := trim(m.path(c), maxFiles-2); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for _, err := os.Lstat(path + ".20200101-000000.tmp"); err != nil; _, err = os.Lstat(path + ".20200101-000000.tmp") {
				if _, err := os.Lstat(path + ".20200101-000000.gz"); err == nil {
					break // compression has finished already
				}
			}
			if err := os.RemoveAll(filepath.Dir(filepath.Dir(path))); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}
