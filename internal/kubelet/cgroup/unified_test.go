//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// TestRealVersion2 makes, kills and removes groups of v2, also on machines whose controllers are in v1: every Linux can mount it.
func TestRealVersion2(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	control := filepath.Join(dir, "cgroup.subtree_control")
	enabled, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Fields(string(enabled))
	t.Cleanup(func() {
		after, _ := os.ReadFile(control)
		for c := range strings.FieldsSeq(string(after)) {
			if !slices.Contains(before, c) {
				if err := write(control, "-"+c); err != nil {
					t.Error(err)
				}
			}
		}
	})
	m, err := New(Options{Hierarchies: []Hierarchy{{Dir: dir, V2: true}}, Root: fmt.Sprintf("/skifftest-%d-%d", os.Getpid(), time.Now().UnixNano())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, path := range []string{"/kubepods/burstable", "/kubepods", ""} {
			if err := os.Remove(filepath.Join(dir, m.rootPath(), path)); err != nil {
				t.Error(err)
			}
		}
	})
	pod := newPod("two", "cpu=1/-")
	path := m.Parent(pod)
	if made, err := m.make(path + "/container"); err != nil || !made {
		t.Fatalf("%v %v", made, err)
	}
	if made, err := m.make(path + "/container"); err != nil || made {
		t.Errorf("made again: %v %v", made, err)
	}
	cmd := start(t, m, path+"/container", "for i in 1 2 3; do sleep 1000 & done; echo done; wait")
	if left, err := m.Left(); err != nil || len(left) != 1 || left[0] != "two" {
		t.Errorf("left: %v %v", left, err)
	}
	if err := m.Remove("two"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process in the group ended with %v", err)
	}
	if left, err := m.Left(); err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	m := onThisMachine(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			uid := types.UID(fmt.Sprintf("pod%d", i))
			pod := newPod(uid, []string{"", "cpu=100m/-", "cpu=1/1 memory=64Mi/64Mi"}[i%3])
			for range 3 {
				if _, err := m.Ensure(pod); err != nil {
					t.Error(err)
				}
				if _, err := m.Usage(uid); err != nil {
					t.Error(err)
				}
				if err := m.Remove(uid); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if left, err := m.Left(); err != nil || len(left) != 0 || len(m.burstableRequests) != 0 || len(m.limitsSet) != 0 {
		t.Errorf("left: %v %v %v %v", left, m.burstableRequests, m.limitsSet, err)
	}
}
