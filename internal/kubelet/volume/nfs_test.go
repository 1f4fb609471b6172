//go:build linux

package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// NFS is mounted by the node's mount program: here one that mounts a directory in its place.
func TestNFS(t *testing.T) {
	f := newFixture(t)
	export := t.TempDir()
	program, calls := filepath.Join(t.TempDir(), "mount"), filepath.Join(t.TempDir(), "calls")
	script := "#!/bin/sh\necho \"$@\" >>" + calls + "\nfor dir; do :; done\ncase \"$*\" in *broken*) echo access denied; exit 32;; esac\nexec mount --bind " + export + " \"$dir\"\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	f.opts.MountProgram = program
	pod := newPod("a", corev1.Volume{Name: "share", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "fd00::1", Path: "/export", ReadOnly: true}}})
	f.setUp(pod)
	f.setUp(pod)
	if err := os.WriteFile(filepath.Join(export, "file"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.shows(pod, "share", map[string]string{"file": "hello"})
	dir := f.path(pod, "share")
	if got, err := os.ReadFile(calls); err != nil || string(got) != "-t nfs -o ro [fd00::1]:/export "+dir+"\n" {
		t.Errorf("the mount program is called with %q, %v", got, err)
	}
	if err := f.TearDown(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(export, "file")); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
	err := f.SetUp(t.Context(), newPod("b", corev1.Volume{Name: "share", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "broken", Path: "/x"}}}))
	if err == nil || !strings.Contains(err.Error(), "MountVolume.SetUp failed for volume \"share\" : mount failed: exit status 32") || !strings.Contains(err.Error(), "Output: access denied") {
		t.Errorf("users are told %v", err)
	}
}
