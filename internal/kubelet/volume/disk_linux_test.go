package volume

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// loop attaches an image of 16 MB that holds some bytes to a loop device.
func loop(t *testing.T, holds string) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, []byte(holds), 0o600), os.Truncate(image, 16<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program("losetup"), "-f", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device: %v: %s", err, out)
	}
	disk := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command(program("losetup"), "-d", disk).CombinedOutput(); err != nil {
			t.Errorf("detaching %s: %v: %s", disk, err, out)
		}
	})
	return disk
}

// local returns a pod with a claim that is bound to a local volume.
func (f *fixture) local(uid types.UID, path string, readOnly bool) *corev1.Pod {
	name := "disk"
	f.source.claims[name] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: "claim"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	f.source.volumes["pv"] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}, ClaimRef: &corev1.ObjectReference{UID: "claim"}}}
	return newPod(string(uid), corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly}}})
}

// TestLocalDisk mounts a block device as a local volume: it is formatted once, two pods have it at a time, and what it holds stays.
func TestLocalDisk(t *testing.T) {
	f := newFixture(t)
	disk := loop(t, "")
	writer := withGroup(f.local("writer", disk, false), 4321)
	f.setUp(writer)
	f.setUp(writer) // again: nothing is mounted twice
	if mounts, _ := mountsBelow(f.PodDir("writer")); len(mounts) != 1 {
		t.Errorf("mounted: %v", mounts)
	}
	if got := owner(t, f.path(writer, "v")); got != "2775 0:4321" {
		t.Errorf("the root of the disk has %s", got)
	}
	if err := os.WriteFile(f.path(writer, "v", "data"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader := f.local("reader", disk, true)
	f.setUp(reader)
	if err := os.WriteFile(f.path(reader, "v", "data"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to a read-only volume: %v", err)
	}
	if err := os.WriteFile(f.path(writer, "v", "more"), nil, 0o600); err != nil {
		t.Errorf("the first pod cannot write any more: %v", err)
	}
	for _, uid := range []types.UID{"writer", "reader"} {
		if err := f.TearDown(context.Background(), uid); err != nil {
			t.Fatal(err)
		}
	}
	again := f.local("again", disk, false)
	f.setUp(again)
	if got, err := os.ReadFile(f.path(again, "v", "data")); string(got) != "precious" {
		t.Errorf("the data is %q now (%v)", got, err)
	}
	if err := f.TearDown(context.Background(), "again"); err != nil {
		t.Fatal(err)
	}
}

// TestLocalDiskKeepsWhatItHolds offers disks that must not be formatted.
func TestLocalDiskKeepsWhatItHolds(t *testing.T) {
	f := newFixture(t)
	table := make([]byte, 512) // a partition table with one partition
	table[450], table[454], table[459], table[510], table[511] = 0x83, 1, 1, 0x55, 0xaa
	disk := loop(t, string(table))
	err := f.SetUp(context.Background(), f.local("table", disk, false))
	if err == nil || !strings.Contains(err.Error(), `it holds "dos"`) {
		t.Errorf("a disk with partitions: %v", err)
	}
	if got, err := os.ReadFile(disk); err != nil || string(got[:512]) != string(table) {
		t.Errorf("the partition table has changed (%v)", err)
	}
	pod := f.local("name", disk, false)
	f.source.volumes["pv"].Spec.Local.FSType = ptr("../../bin/sh")
	if err := f.SetUp(context.Background(), pod); err == nil || !strings.Contains(err.Error(), "is not the name of a file system") {
		t.Errorf("a file system of a strange name: %v", err)
	}
	if err := f.SetUp(context.Background(), f.local("pipe", "/dev/null", false)); err == nil || !strings.Contains(err.Error(), "only directory and block device are supported") {
		t.Errorf("a character device: %v", err)
	}
}
