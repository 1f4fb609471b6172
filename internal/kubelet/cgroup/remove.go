package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// removeTimeout bounds how long Remove waits for killed processes to leave. One in an uninterruptible wait for a disk may take longer; the
// caller comes back then.
const removeTimeout = 10 * time.Second

// Remove kills what is left in a pod's cgroup and removes it, with all groups in it, from every hierarchy: also from v2 on a hybrid
// machine, where runtimes may have put containers. A group that does not exist is no error.
func (m *Manager) Remove(uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.limitsSet, uid)
	m.mu.Unlock()
	if err := m.removeTree(uid); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, counted := m.burstableRequests[uid]; !counted {
		return nil
	}
	delete(m.burstableRequests, uid)
	return m.weighBurstable()
}

func (m *Manager) removeTree(uid types.UID) error {
	deadline, pause := time.Now().Add(removeTimeout), time.Millisecond
	for {
		err := m.removeOnce(uid)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("failed to remove the cgroup of pod %s: %w", uid, err)
		}
		time.Sleep(pause)
		pause = min(2*pause, 200*time.Millisecond)
	}
}

// removeOnce kills everything, then removes everything, and reports what it could not remove.
func (m *Manager) removeOnce(uid types.UID) error {
	var trees [][]string
	for _, dir := range m.podDirs(uid) {
		groups, err := below(dir)
		if err != nil {
			return err
		}
		trees = append(trees, groups)
	}
	for _, groups := range trees {
		for _, group := range groups {
			kill(group)
		}
	}
	var failed []error
	for _, groups := range trees {
		for _, group := range slices.Backward(groups) {
			if err := m.remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, err)
				break // its parents are not empty
			}
		}
	}
	return errors.Join(failed...)
}

// podDirs returns all directories of a pod, in any hierarchy and any class: the class a pod was started with is not always known any more.
func (m *Manager) podDirs(uid types.UID) []string {
	var dirs []string
	for _, h := range m.hierarchies {
		for _, class := range classes {
			dir := filepath.Join(h.Dir, m.path(class, podName(uid)))
			if _, err := os.Stat(dir); err == nil {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// below lists a group and all groups in it, each before those in it.
func below(dir string) ([]string, error) {
	groups := []string{dir}
	for i := 0; i < len(groups); i++ {
		entries, err := os.ReadDir(groups[i])
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !isRemoved(err) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				groups = append(groups, filepath.Join(groups[i], e.Name()))
			}
		}
	}
	return groups, nil
}

// kill kills every process of one cgroup. A frozen cgroup is thawed first: its processes would never see the signal.
func kill(group string) {
	if file := filepath.Join(group, "cgroup.kill"); os.WriteFile(file, []byte("1"), 0) == nil {
		return // v2 does it at once, and reaches what forks meanwhile
	}
	content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil || len(content) == 0 {
		return
	}
	if file := filepath.Join(group, "freezer.state"); exists(file) {
		_ = os.WriteFile(file, []byte("THAWED"), 0)
	}
	for field := range bytes.FieldsSeq(content) {
		// 0 is a process that this PID namespace does not see.
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 1 && pid != os.Getpid() {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // it has exited already, or is killed in the next round
				_ = p.Release()
			}
		}
	}
}

// Left lists the pods that have a group in any hierarchy.
func (m *Manager) Left() ([]types.UID, error) {
	found := map[types.UID]bool{}
	for _, h := range m.hierarchies {
		for _, class := range classes {
			entries, err := os.ReadDir(filepath.Join(h.Dir, m.classPath(class)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("failed to list the cgroups of pods: %w", err)
			}
			for _, e := range entries {
				if uid, ok := m.uid(class, e.Name()); ok && e.IsDir() {
					found[uid] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// RemoveAll removes kubepods itself with everything in it: what a node leaves behind when it is taken down.
func (m *Manager) RemoveAll() error {
	left, err := m.Left()
	if err != nil {
		return err
	}
	for _, uid := range left {
		if err := m.Remove(uid); err != nil {
			return err
		}
	}
	for _, class := range slices.Backward(classes[:]) {
		for _, h := range m.hierarchies {
			if err := m.remove(filepath.Join(h.Dir, m.classPath(class))); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
