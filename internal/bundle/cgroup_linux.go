package bundle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skiff/internal/mounts"
)

// hierarchies returns the directories where cgroups are mounted: one with cgroup v2, one per controller with v1, both with hybrid.
// v1's cpuset is left out: a new cgroup there takes no process before it is given processors.
func hierarchies() ([]string, error) {
	table, err := mounts.Table()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range table {
		if m.Kind == "cgroup2" || m.Kind == "cgroup" && !slices.Contains(strings.Split(m.Options, ","), "cpuset") {
			if !slices.Contains(out, m.At) {
				out = append(out, m.At)
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no cgroups are mounted")
	}
	return out, nil
}

// enterCgroup moves a process into a cgroup of every hierarchy, and creates the cgroup if there is none.
func enterCgroup(path string, pid int) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	var failed error
	for _, root := range roots {
		dir := filepath.Join(root, path)
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// inCgroup returns the processes in a cgroup, in any hierarchy.
func inCgroup(path string) ([]int, error) {
	roots, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, root := range roots {
		dirs = append(dirs, filepath.Join(root, path))
	}
	return ProcessesIn(dirs...)
}

// ProcessesIn returns the processes in the cgroups of some directories. A cgroup that does not exist has none.
func ProcessesIn(dirs ...string) (pids []int, failed error) {
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
			failed = errors.Join(failed, err)
		}
		for word := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 && !slices.Contains(pids, pid) { // 0 stands for a process outside this PID namespace
				pids = append(pids, pid)
			}
		}
	}
	return pids, failed
}

// endCgroup kills all processes in a cgroup.
func endCgroup(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	for {
		pids, err := inCgroup(path)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("failed to kill processes %v in cgroup %s", pids, path)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// removeCgroup removes an empty cgroup, and its parents if they are empty then.
func removeCgroup(path string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	var failed error
	for _, root := range roots {
		for p := path; p != "/"; p = filepath.Dir(p) {
			err := syscall.Rmdir(filepath.Join(root, p))
			if err == nil || errors.Is(err, syscall.ENOENT) {
				continue
			}
			if p == path {
				failed = errors.Join(failed, fmt.Errorf("failed to remove cgroup %s in %s: %w", p, root, err))
			}
			break
		}
	}
	return failed
}
