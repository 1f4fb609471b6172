//go:build linux

package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"golang.org/x/sys/unix"
)

// mount returns what the runtime is given for one mount of the pod's container.
func (f *fixture) mount(pod *corev1.Pod, m corev1.VolumeMount, variables ...string) (*runtimeapi.Mount, error) {
	f.t.Helper()
	c := corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{m}}
	var env []*runtimeapi.KeyValue
	for i := 0; i < len(variables); i += 2 {
		env = append(env, &runtimeapi.KeyValue{Key: variables[i], Value: []byte(variables[i+1])})
	}
	mounts, err := f.Mounts(pod, &c, env)
	if err != nil {
		return nil, err
	}
	return mounts[0], nil
}

func TestMounts(t *testing.T) {
	f := newFixture(t)
	f.source.set("web", map[string]string{"a": "1"})
	image := corev1.Volume{Name: "image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "example.com/model:1"}}}
	pod := newPod("1", emptyDir("dir"), configMap("config", "web"), image)
	f.setUp(pod)
	mounts, err := f.Mounts(pod, &pod.Spec.Containers[0], nil)
	if err != nil || len(mounts) != 3 {
		t.Fatalf("%v %v", mounts, err)
	}
	if m := mounts[0]; m.HostPath != f.path(pod, "dir") || m.ContainerPath != "/dir" || m.Readonly || m.Image != nil {
		t.Errorf("an empty directory: %v", m)
	}
	if m := mounts[1]; m.HostPath != f.path(pod, "config") || !m.Readonly {
		t.Errorf("a config map: %v", m)
	}
	if m := mounts[2]; m.HostPath != "" || m.Image.GetImage() != "example.com/model:1" || !m.Readonly {
		t.Errorf("an image: %v", m)
	}
	if m, err := f.mount(pod, corev1.VolumeMount{Name: "image", MountPath: "/m", SubPath: "weights"}); err != nil || m.ImageSubPath != "weights" || m.HostPath != "" {
		t.Errorf("part of an image: %v %v", m, err)
	}
	if m, err := f.mount(pod, corev1.VolumeMount{Name: "dir", MountPath: "relative", ReadOnly: true, MountPropagation: ptr(corev1.MountPropagationBidirectional)}); err != nil ||
		m.ContainerPath != "/relative" || !m.Readonly || m.Propagation != runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL {
		t.Errorf("%v %v", m, err)
	}
	if m, err := f.mount(pod, corev1.VolumeMount{Name: "dir", MountPath: "/x", MountPropagation: ptr(corev1.MountPropagationHostToContainer)}); err != nil ||
		m.Propagation != runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER {
		t.Errorf("%v %v", m, err)
	}
	for want, m := range map[string]corev1.VolumeMount{
		`cannot find volume "none" to mount into container "c"`:          {Name: "none"},
		`invalid MountPropagation mode: "Sideways"`:                      {Name: "dir", MountPropagation: ptr(corev1.MountPropagationMode("Sideways"))},
		"error SubPath `/a` must not be an absolute path":                {Name: "dir", SubPath: "/a"},
		"unable to provision SubPath `a/../../b`: must not contain '..'": {Name: "dir", SubPath: "a/../../b"},
		"missing value for NOPE, POD":                                    {Name: "dir", SubPathExpr: "$(POD)/$(NOPE)"},
		`failed to resolve recursive read-only mode: volume "dir" requested recursive read-only mode, but it is not read-only`:                {Name: "dir", RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled)},
		`failed to resolve recursive read-only mode: unknown recursive read-only mode "Perhaps"`:                                              {Name: "dir", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyMode("Perhaps"))},
		`failed to resolve recursive read-only mode: volume "dir" requested recursive read-only mode, but it is not supported by the runtime`: {Name: "dir", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled)},
		`failed to resolve recursive read-only mode: volume "dir" requested recursive read-only mode, but it is not compatible with propagation "HostToContainer"`: {
			Name: "dir", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled), MountPropagation: ptr(corev1.MountPropagationHostToContainer)},
	} {
		if _, err := f.mount(pod, m); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	may := corev1.VolumeMount{Name: "dir", MountPath: "/x", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyIfPossible)}
	if m, err := f.mount(pod, may); err != nil || m.RecursiveReadOnly {
		t.Errorf("%v %v", m, err)
	}
	f.rro = true
	if m, err := f.mount(pod, may); err != nil || !m.RecursiveReadOnly {
		t.Errorf("%v %v", m, err)
	}
	if _, err := f.Mounts(newPod("2"), &pod.Spec.Containers[0], nil); err == nil {
		t.Error("mounts of a pod whose volumes were not set up")
	}
}

func TestSubPath(t *testing.T) {
	f := newFixture(t)
	f.source.set("web", map[string]string{"a": "1"})
	pod := withGroup(newPod("1", emptyDir("dir"), configMap("config", "web")), 99)
	f.setUp(pod)

	m, err := f.mount(pod, corev1.VolumeMount{Name: "dir", MountPath: "/x", SubPathExpr: "logs/$(POD)"}, "POD", "web-1")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(f.dir, "pods/1/volume-subpaths/dir/c/0"); m.HostPath != want {
		t.Errorf("the mount is from %s, want %s", m.HostPath, want)
	}
	if err := os.WriteFile(filepath.Join(m.HostPath, "log"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.path(pod, "dir", "logs/web-1/log")); err != nil {
		t.Errorf("what the container wrote is not in the volume: %v", err)
	}
	for _, dir := range []string{"logs", "logs/web-1"} {
		if got := owner(t, f.path(pod, "dir", dir)); got != "2777 0:99" {
			t.Errorf("%s was made with %s", dir, got)
		}
	}
	again, err := f.mount(pod, corev1.VolumeMount{Name: "dir", MountPath: "/x", SubPath: "logs/web-1"})
	if err != nil || again.HostPath != m.HostPath {
		t.Errorf("%v %v", again, err)
	}
	if mounts, _ := mountsBelow(m.HostPath); len(mounts) != 1 {
		t.Errorf("mounted: %v", mounts)
	}

	// A file of a ConfigMap stays what it was when the container started, and is the new one for the next container.
	key := corev1.VolumeMount{Name: "config", MountPath: "/etc/a", SubPath: "a"}
	read := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(f.dir, "pods/1/volume-subpaths/config/c/0")); string(got) != want {
			t.Errorf("the file is %q, want %q (%v)", got, want, err)
		}
	}
	if _, err := f.mount(pod, key); err != nil {
		t.Fatal(err)
	}
	read("1")
	f.source.set("web", map[string]string{"a": "2"})
	f.setUp(pod)
	read("1")
	if _, err := f.mount(pod, key); err != nil {
		t.Fatal(err)
	}
	read("2")

	// What was a directory is a file now.
	if err := errors.Join(os.RemoveAll(f.path(pod, "dir", "logs/web-1")), os.WriteFile(f.path(pod, "dir", "logs/web-1"), []byte("file"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if m, err = f.mount(pod, corev1.VolumeMount{Name: "dir", MountPath: "/x", SubPath: "logs/web-1"}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(m.HostPath); string(got) != "file" {
		t.Errorf("%q %v", got, err)
	}
	// Links in the volume are followed, those out of it are not.
	if err := errors.Join(os.Mkdir(f.path(pod, "dir", "real"), 0o755), os.Symlink("../dir/real", f.path(pod, "dir", "up")), os.Symlink("real", f.path(pod, "dir", "near")),
		os.Symlink("/", f.path(pod, "dir", "top")), os.Symlink("real/../../../..", f.path(pod, "dir", "far")), os.Symlink("nothing", f.path(pod, "dir", "dangling")),
		os.Symlink("loop", f.path(pod, "dir", "loop"))); err != nil {
		t.Fatal(err)
	}
	if m, err = f.mount(pod, corev1.VolumeMount{Name: "dir", MountPath: "/x", SubPath: "near/sub"}); err != nil {
		t.Error(err)
	} else if inode(t, m.HostPath) != inode(t, f.path(pod, "dir", "real/sub")) {
		t.Error("a link in the volume led elsewhere")
	}
	for _, path := range []string{"up", "top", "top/etc", "far", "far/etc", "far/new", "top/tmp/new", "dangling", "dangling/x", "loop"} {
		if m, err := f.mount(pod, corev1.VolumeMount{Name: "dir", MountPath: "/x", SubPath: path}); err == nil {
			t.Errorf("%s: mounted %s", path, m.HostPath)
		} else if want := `failed to prepare subPath for volumeMount "dir" of container "c"`; err.Error() != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := os.Stat("/tmp/new"); err == nil {
		t.Error("a directory was made outside the volume")
	}
}

// TestSubPathRace swaps a directory for a link to outside of the volume, over and over, while it is mounted. Whatever was mounted is inside.
func TestSubPathRace(t *testing.T) {
	f := newFixture(t)
	outside := filepath.Join(f.dir, "outside")
	if err := errors.Join(os.MkdirAll(filepath.Join(outside, "sub"), 0o755), os.WriteFile(filepath.Join(outside, "sub", "secret"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	pod := newPod("1", emptyDir("v"))
	f.setUp(pod)
	real, link := f.path(pod, "v", "swap"), f.path(pod, "v", "link")
	if err := errors.Join(os.MkdirAll(filepath.Join(real, "sub"), 0o755), os.Symlink(outside, link)); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, real, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	good, refused := 0, 0
	for range 1000 {
		m, err := f.mount(pod, corev1.VolumeMount{Name: "v", MountPath: "/x", SubPath: "swap/sub"})
		if err != nil {
			refused++
			continue
		}
		good++
		if _, err := os.Stat(filepath.Join(m.HostPath, "secret")); err == nil {
			t.Fatal("a link led the mount out of the volume")
		}
	}
	close(stop)
	wg.Wait()
	if good == 0 || refused == 0 {
		t.Errorf("%d mounted, %d refused: no race took place", good, refused)
	}
}

// TestGroupRace swaps a file for a link to outside while the volume's group is set.
func TestGroupRace(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.WriteFile(outside, nil, 0o600), os.WriteFile(filepath.Join(dir, "swap"), nil, 0o600), os.Symlink(outside, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "swap"), unix.AT_FDCWD, filepath.Join(dir, "link"), unix.RENAME_EXCHANGE)
			}
		}
	})
	for range 500 {
		if err := setGroup(context.Background(), dir, 5, false); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if got := owner(t, outside); got != "600 0:0" {
		t.Errorf("the file outside has %s", got)
	}
	if got := owner(t, dir); !strings.HasSuffix(got, "0:5") {
		t.Errorf("the volume has %s", got)
	}
}

func TestDevices(t *testing.T) {
	f := newFixture(t)
	disk := filepath.Join(f.dir, "disk")
	if err := unix.Mknod(disk, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))); err != nil {
		t.Fatal(err)
	}
	pod := newPod("1", corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
	f.source.claims["c"] = &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{}, VolumeMode: ptr(corev1.PersistentVolumeBlock),
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: disk}}}}
	f.source.volumes["pv"] = pv
	failure(t, f.SetUp(context.Background(), pod), "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: "+
		"volume v has volumeMode Block, but is specified in volumeMounts")
	c := &pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/xvda"}}
	f.setUp(pod)
	if devices, err := f.Devices(pod, c); err != nil || len(devices) != 1 || devices[0].HostPath != disk || devices[0].ContainerPath != "/dev/xvda" || devices[0].Permissions != "mrw" {
		t.Errorf("%v %v", devices, err)
	}
	pv.Spec.VolumeMode = nil
	failure(t, f.SetUp(context.Background(), pod), "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: "+
		"volume v has volumeMode Filesystem, but is specified in volumeDevices")
}
