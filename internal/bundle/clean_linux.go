package bundle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"skiff/internal/mounts"
)

// Clean ends the containerd of a data directory, its shims and their containers, and removes their mounts, network namespaces, cgroups
// and sockets. Images and metadata stay. It works whatever runs, and in whatever state it is.
func Clean(ctx context.Context, dataDir string) error {
	dataDir, err := Resolve(dataDir)
	if err != nil {
		return err
	}
	p := pathsOf(dataDir)
	running, err := containerds(dataDir)
	if err != nil {
		return err
	}
	for _, c := range running {
		if err := c.end(ctx, politely...); err != nil {
			return err
		}
	}
	return errors.Join(
		endContainers(ctx, p, dataDir),
		endCgroup(ctx, p.Cgroup),
		endPrograms(ctx, bundles(dataDir)),
		unmountAll(p.Root, p.Run),
		removeCgroup(p.Cgroup),
		os.RemoveAll(p.Run),
		removeEmpty(runDir),
	)
}

// endContainers has runc kill and delete every container that it has a state of.
func endContainers(ctx context.Context, p Paths, dataDir string) error {
	ids, err := filepath.Glob(filepath.Join(p.Runc, "*", "*", "state.json"))
	if err != nil || len(ids) == 0 {
		return err
	}
	runcs, err := filepath.Glob(filepath.Join(bundles(dataDir), "*", "bin", "runc"))
	if err != nil {
		return err
	}
	if len(runcs) == 0 {
		return fmt.Errorf("%s has containers, but there is no runc under %s to kill them with", p.Runc, bundles(dataDir))
	}
	var failed error
	for _, state := range ids {
		dir := filepath.Dir(state)
		cmd := exec.CommandContext(ctx, runcs[0], "--root", filepath.Dir(dir), "delete", "--force", filepath.Base(dir))
		if out, err := cmd.CombinedOutput(); err != nil && exists(state) {
			failed = errors.Join(failed, fmt.Errorf("failed to kill container %s: %w: %s", filepath.Base(dir), err, strings.TrimSpace(string(out))))
		}
	}
	return failed
}

// endPrograms kills processes that still run from the bundles: shims that were not in the cgroup.
func endPrograms(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	for {
		var pids []int
		err := eachProgram(dir, func(pid int, file string) {
			if strings.HasPrefix(filepath.Base(file), "kubectl-") {
				return // a command that a user has started
			}
			pids = append(pids, pid)
			syscall.Kill(pid, syscall.SIGKILL)
		})
		if err != nil || len(pids) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("failed to kill processes %v", pids)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// unmountAll unmounts everything under some directories, the last mount first.
func unmountAll(dirs ...string) error {
	table, err := mounts.Table()
	if err != nil {
		return err
	}
	var failed error
	for _, m := range slices.Backward(table) {
		within := slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(m.At, d+"/") })
		if !within {
			continue
		}
		if err := syscall.Unmount(m.At, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			failed = errors.Join(failed, fmt.Errorf("failed to unmount %s: %w", m.At, err))
		}
	}
	return failed
}

// removeEmpty removes a directory if it is empty.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
