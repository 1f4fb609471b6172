//go:build linux

package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skiff/internal/kubelet/disk"
)

const mib = 1 << 20

// node is a driver with directories of its own. At its end nothing of it may be mounted or attached.
type node struct {
	*testing.T
	*disk.Driver
	images, kubelet string
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("this machine has no loop devices")
	}
	n := &node{T: t, images: filepath.Join(t.TempDir(), "volumes"), kubelet: t.TempDir()}
	n.restart()
	t.Cleanup(func() {
		if left := n.stillAttached(""); len(left) > 0 {
			t.Errorf("still attached: %v", left)
		}
		if err := disk.Clean(n.images); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) restart() {
	n.Helper()
	var err error
	if n.Driver, err = disk.New(disk.Options{Dir: n.images, NodeName: "n1"}); err != nil {
		n.Fatal(err)
	}
}

// attached returns the devices that are attached to the images, or to that of one volume.
func (n *node) attached(id string) (list []string) {
	prefix := n.images
	if id != "" {
		prefix = filepath.Join(n.images, id+".img")
	}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(data), prefix) {
			list = append(list, f)
		}
	}
	return list
}

// stillAttached returns the devices that are attached to the images, or to that of one volume, when they have had time to go: a mount namespace that somebody on
// the machine makes while a volume is mounted has its mounts too, until a container's root is in place.
func (n *node) stillAttached(id string) (list []string) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if list = n.attached(id); len(list) == 0 || time.Now().After(end) {
			return list
		}
	}
}

func mount(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}}}
}

func block() *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
}

func request(id string, size int64, c *csi.VolumeCapability) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{Name: id, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*csi.VolumeCapability{c}}
}

func (n *node) create(id string, size int64, c *csi.VolumeCapability) {
	n.Helper()
	if _, err := n.CreateVolume(n.Context(), request(id, size, c)); err != nil {
		n.Fatal(err)
	}
}

func (n *node) staging(id string) string { return filepath.Join(n.kubelet, "staging", id) }
func (n *node) target(id string) string  { return filepath.Join(n.kubelet, "pod", id) }

func (n *node) stage(id string, c *csi.VolumeCapability) {
	n.Helper()
	if _, err := n.NodeStageVolume(n.Context(), &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: n.staging(id), VolumeCapability: c}); err != nil {
		n.Fatal(err)
	}
}

// publish stages and publishes a volume and returns where it is.
func (n *node) publish(id string, c *csi.VolumeCapability, readOnly bool) string {
	n.Helper()
	n.stage(id, c)
	if _, err := n.NodePublishVolume(n.Context(), &csi.NodePublishVolumeRequest{VolumeId: id, StagingTargetPath: n.staging(id), TargetPath: n.target(id), VolumeCapability: c, Readonly: readOnly}); err != nil {
		n.Fatal(err)
	}
	return n.target(id)
}

func (n *node) unpublish(id string) {
	n.Helper()
	if _, err := n.NodeUnpublishVolume(n.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: n.target(id)}); err != nil {
		n.Fatal(err)
	}
	if _, err := n.NodeUnstageVolume(n.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: n.staging(id)}); err != nil {
		n.Fatal(err)
	}
	n.stillAttached(id)
}

func (n *node) remove(id string) {
	n.Helper()
	if _, err := n.DeleteVolume(n.Context(), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
		n.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(n.images, id+".img")); !errors.Is(err, fs.ErrNotExist) {
		n.Fatalf("the image is still there: %v", err)
	}
}

func want(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || code != codes.OK && !strings.Contains(err.Error(), text) {
		t.Fatalf("got %v, want %v: %s", err, code, text)
	}
}

// A volume keeps what is written to it over pods and restarts of the driver, and is gone when it has been deleted. Every call can be repeated.
func TestLife(t *testing.T) {
	n := newNode(t)
	for range 2 {
		n.create("v", 20*mib, mount(""))
	}
	for range 2 {
		at := n.publish("v", mount(""), false)
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o777 {
			t.Fatalf("not everybody may write: %v %v", info, err)
		}
		if list, err := os.ReadDir(at); err != nil || len(list) != 0 {
			t.Fatalf("a new volume is not empty: %v %v", list, err)
		}
	}
	_, err := n.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "v"})
	want(t, err, codes.FailedPrecondition, "volume v is in use: it is attached to /dev/loop")
	if err := os.WriteFile(filepath.Join(n.target("v"), "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.unpublish("v")
	n.unpublish("v")
	if left := n.stillAttached("v"); len(left) > 0 {
		t.Fatalf("still attached: %v", left)
	}
	at := n.publish("v", mount(""), true)
	if data, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(data) != "kept" {
		t.Fatalf("%s %v", data, err)
	}
	if err := os.WriteFile(filepath.Join(at, "other"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Fatalf("it was published read-only: %v", err)
	}
	n.unpublish("v")
	n.remove("v")
	n.remove("v")
}

// Who fills a volume gets ENOSPC at its size, and the disk does not notice: the space was taken when the volume was created.
func TestSizeIsEnforced(t *testing.T) {
	n := newNode(t)
	n.create("v", 64*mib, mount(""))
	var s unix.Stat_t
	if err := unix.Stat(filepath.Join(n.images, "v.img"), &s); err != nil || s.Size != 64*mib || s.Blocks*512 < 64*mib {
		t.Fatalf("the image has %d bytes, of which %d are allocated: %v", s.Size, s.Blocks*512, err)
	}
	at := n.publish("v", mount(""), false)
	f, err := os.Create(filepath.Join(at, "file"))
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	for err == nil && written < 100 {
		if _, err = f.Write(bytes.Repeat([]byte{'x'}, mib)); err == nil {
			written++
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.ENOSPC) || written < 50 || written >= 64 {
		t.Fatalf("after %d MiB: %v", written, err)
	}
	response, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: at})
	if err != nil || len(response.Usage) != 2 || response.Usage[0].Available > mib || response.Usage[0].Used < 50*mib || response.Usage[1].Used == 0 {
		t.Fatalf("%v %v", response, err)
	}
	n.unpublish("v")
	n.remove("v")
}

// An expanded file system has its new size when it is staged next, and at once where the kernel allows it.
func TestExpand(t *testing.T) {
	n := newNode(t)
	n.create("v", 32*mib, mount(""))
	at := n.publish("v", mount(""), false)
	if err := os.WriteFile(filepath.Join(at, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		response, err := n.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 300 * mib}})
		if err != nil || response.CapacityBytes != 300*mib || !response.NodeExpansionRequired {
			t.Fatalf("%v %v", response, err)
		}
	}
	expand := &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: at}
	_, err := n.NodeExpandVolume(t.Context(), expand)
	if err != nil {
		want(t, err, codes.FailedPrecondition, "CAP_SYS_RESOURCE")
		t.Log("not while it is mounted")
		n.unpublish("v")
		n.publish("v", mount(""), false)
		if _, err = n.NodeExpandVolume(t.Context(), expand); err != nil {
			t.Fatal(err)
		}
	}
	var s unix.Statfs_t
	if err := unix.Statfs(at, &s); err != nil || int64(s.Blocks)*s.Bsize < 260*mib {
		t.Fatalf("%d bytes: %v", int64(s.Blocks)*s.Bsize, err)
	}
	if data, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(data) != "kept" {
		t.Fatalf("%s %v", data, err)
	}
	n.unpublish("v")
	n.remove("v")
}

// XFS grows while it is mounted.
func TestXFS(t *testing.T) {
	n := newNode(t)
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		_, err := n.CreateVolume(t.Context(), request("v", 20*mib, mount("xfs")))
		want(t, err, codes.FailedPrecondition, "node n1 has no program mkfs.xfs: install the package xfsprogs")
		t.Skip("this machine has no mkfs.xfs")
	}
	n.create("v", 20*mib, mount("xfs"))
	at := n.publish("v", mount("xfs"), false)
	if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o777 {
		t.Fatalf("not everybody may write: %v %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(at, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 600 * mib}}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: at}); err != nil {
		t.Fatal(err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(at, &s); err != nil || int64(s.Blocks)*s.Bsize < 500*mib {
		t.Fatalf("%d bytes: %v", int64(s.Blocks)*s.Bsize, err)
	}
	n.unpublish("v")
	// Likewise when it is staged.
	if _, err := n.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 800 * mib}}); err != nil {
		t.Fatal(err)
	}
	at = n.publish("v", mount("xfs"), false)
	if err := unix.Statfs(at, &s); err != nil || int64(s.Blocks)*s.Bsize < 700*mib {
		t.Fatalf("%d bytes: %v", int64(s.Blocks)*s.Bsize, err)
	}
	if data, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(data) != "kept" {
		t.Fatalf("%s %v", data, err)
	}
	n.unpublish("v")
	n.remove("v")
}

// A volume for one pod is not published for two.
func TestOnePod(t *testing.T) {
	n := newNode(t)
	c := mount("")
	c.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	n.create("v", 20*mib, c)
	for range 2 {
		n.publish("v", c, false)
	}
	_, err := n.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "v", StagingTargetPath: n.staging("v"), TargetPath: n.target("w"), VolumeCapability: c})
	want(t, err, codes.FailedPrecondition, "volume v is for one pod, and is mounted at "+n.target("v"))
	n.unpublish("v")
	n.remove("v")
}

// A volume for one pod is published where the kubelet's directory has two paths, as in local nodes: what is mounted in it is in the mount table twice.
func TestOnePodOfTwoPaths(t *testing.T) {
	n := newNode(t)
	standard := t.TempDir()
	for _, to := range []string{n.kubelet, standard} {
		if err := unix.Mount(n.kubelet, to, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		if err := unix.Mount("", to, "", unix.MS_SHARED, ""); err != nil {
			t.Fatal(err)
		}
	}
	c := mount("")
	c.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	n.create("v", 20*mib, c)
	at := n.publish("v", c, false)
	if err := os.WriteFile(filepath.Join(at, "file"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(standard, "pod", "v", "file")); err != nil {
		t.Errorf("the mounts of one path are not in the other: %v", err)
	}
	n.unpublish("v")
	n.remove("v")
}

func TestBlock(t *testing.T) {
	n := newNode(t)
	n.create("b", 10*mib, block())
	_, err := n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "b", StagingTargetPath: n.staging("b"), VolumeCapability: mount("")})
	want(t, err, codes.FailedPrecondition, "volume b has no file system")
	for range 2 {
		n.publish("b", block(), false)
	}
	n.restart()
	f, err := os.OpenFile(n.target("b"), os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("kept"), 0); err != nil {
		t.Fatal(err)
	}
	if response, err := n.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "b", CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * mib}}); err != nil || response.NodeExpansionRequired {
		t.Fatalf("%v %v", response, err)
	}
	if size, err := f.Seek(0, 2); err != nil || size != 20*mib {
		t.Fatalf("the device has %d bytes: %v", size, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n.unpublish("b")
	if data, err := os.ReadFile(filepath.Join(n.images, "b.img")); err != nil || string(data[:4]) != "kept" {
		t.Fatal(err)
	}
	n.remove("b")
}

func TestRefusals(t *testing.T) {
	n := newNode(t)
	n.create("v", 20*mib, mount(""))
	big := request("big", 1<<50, mount(""))
	_, err := n.CreateVolume(t.Context(), big)
	want(t, err, codes.ResourceExhausted, "node n1 has not enough disk space: the volume needs 1Pi more, and ")
	_, err = n.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 50}})
	want(t, err, codes.ResourceExhausted, "disk space")
	_, err = n.CreateVolume(t.Context(), request("v", 40*mib, mount("")))
	want(t, err, codes.AlreadyExists, "volume v exists and has another size, 20Mi")
	for _, id := range []string{"../v", "a/b", "", "a.img", "a.part", ".a"} {
		_, err = n.CreateVolume(t.Context(), request(id, mib, mount("")))
		want(t, err, codes.InvalidArgument, "name")
	}
	shared := mount("")
	shared.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	_, err = n.CreateVolume(t.Context(), request("w", mib, shared))
	want(t, err, codes.InvalidArgument, "ReadWriteOnce and ReadWriteOncePod")
	_, err = n.CreateVolume(t.Context(), request("w", mib, mount("ntfs")))
	want(t, err, codes.InvalidArgument, `no file system "ntfs"`)
	odd := request("w", mib, mount(""))
	odd.Parameters = map[string]string{"csi.storage.k8s.io/pvc/name": "p", "speed": "high"}
	_, err = n.CreateVolume(t.Context(), odd)
	want(t, err, codes.InvalidArgument, `no parameter "speed"`)
	limited := request("w", mib, mount(""))
	limited.CapacityRange.LimitBytes = 2 * mib
	_, err = n.CreateVolume(t.Context(), limited)
	want(t, err, codes.OutOfRange, "16Mi, which is more than 2Mi")
	n.remove("v")
	if left, err := os.ReadDir(n.images); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// The space of a thin volume is taken when it is written.
func TestThin(t *testing.T) {
	n := newNode(t)
	rq := request("t", 1<<40, mount(""))
	rq.CapacityRange.RequiredBytes = 10 << 30
	rq.Parameters = map[string]string{"allocation": "thin"}
	response, err := n.CreateVolume(t.Context(), rq)
	if err != nil || response.Volume.VolumeContext["allocation"] != "thin" {
		t.Fatalf("%v %v", response, err)
	}
	if _, err := n.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "t", CapacityRange: &csi.CapacityRange{RequiredBytes: 12 << 30}}); err != nil {
		t.Fatal(err)
	}
	var s unix.Stat_t
	if err := unix.Stat(filepath.Join(n.images, "t.img"), &s); err != nil || s.Size != 12<<30 || s.Blocks*512 > 1<<30 {
		t.Fatalf("the image has %d bytes, of which %d are allocated: %v", s.Size, s.Blocks*512, err)
	}
	n.remove("t")
}

// What a crash left half made is removed, and nothing else: not even what nobody knows.
func TestCrash(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"v.part", "w.part", "unknown.img"} {
		if err := os.WriteFile(filepath.Join(n.images, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.create("v", 20*mib, mount(""))
	n.restart()
	var names []string
	list, err := os.ReadDir(n.images)
	for _, e := range list {
		names = append(names, e.Name())
	}
	if fmt.Sprint(names) != "[unknown.img v.img]" {
		t.Fatalf("%v %v", names, err)
	}
}

// Calls about one volume wait for each other, and all get the same volume; many volumes are attached at once.
func TestAtOnce(t *testing.T) {
	n := newNode(t)
	var all sync.WaitGroup
	for i := range 12 {
		id := fmt.Sprint("v", i%4)
		all.Go(func() {
			if _, err := n.CreateVolume(t.Context(), request(id, 20*mib, mount(""))); err != nil {
				t.Error(err)
				return
			}
			if _, err := n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: n.staging(id), VolumeCapability: mount("")}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if left := n.attached(""); len(left) != 4 {
		t.Errorf("attached: %v", left)
	}
	if err := disk.Clean(n.images); err != nil {
		t.Error(err)
	}
	for i := range 4 {
		n.remove(fmt.Sprint("v", i))
	}
}
