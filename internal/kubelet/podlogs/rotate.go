package podlogs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

const (
	rotateInterval = 10 * time.Second
	fullInterval   = time.Second // how often logs are checked for a full one before rotateInterval: some containers write a lot
	maxSize        = 10 << 20    // the size at which a log is rotated
	maxFiles       = 5           // the files a container may have, the one it writes to included
	timestamp      = "20060102-150405"
)

// Run rotates the logs of running containers until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	for due := time.Now().Add(rotateInterval); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(fullInterval):
		}
		if time.Now().Before(due) && !m.anyFull() {
			continue
		}
		due = time.Now().Add(rotateInterval)
		running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
		list, err := m.options.Runtime.ListContainers(ctx, running)
		if err != nil {
			continue
		}
		for _, c := range list {
			if err := m.rotate(ctx, c); err != nil && ctx.Err() == nil {
				m.log.Warn("failed to rotate a container's log", "pod", c.Labels[cri.LabelPodNamespace]+"/"+c.Labels[cri.LabelPodName], "container", c.Labels[cri.LabelContainer], "error", err)
			}
		}
	}
}

// anyFull reports whether any log has reached maxSize, of a running container or not.
func (m *Manager) anyFull() bool {
	logs, err := filepath.Glob(filepath.Join(m.options.Dir, "*", "*", "*.log"))
	return err == nil && slices.ContainsFunc(logs, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() >= maxSize
	})
}

// rotate renames the log of a container if it is full, and has the runtime open a new one. Only one rotation runs at a time.
func (m *Manager) rotate(ctx context.Context, c *runtimeapi.Container) error {
	m.rotation.Lock()
	defer m.rotation.Unlock()
	path := m.path(c)
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) { // an earlier rotation was interrupted after the rename
		return m.options.Runtime.ReopenContainerLog(ctx, c.Id)
	}
	if err != nil || info.Size() < maxSize {
		return err
	}
	if err := trim(path, maxFiles-2); err != nil { // the log that is rotated now and the new one come on top
		return err
	}
	rotated := rotatedName(path, time.Now())
	err = os.Rename(path, rotated)
	if errors.Is(err, os.ErrNotExist) { // the pod was removed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	if err := m.options.Runtime.ReopenContainerLog(ctx, c.Id); err != nil {
		// Without a new file the container still writes into the old one.
		return errors.Join(err, os.Rename(rotated, path))
	}
	return nil
}

// rotatedName returns the name for a log that is rotated now. It is unused, even if the clock was set back since an earlier rotation.
func rotatedName(path string, now time.Time) string {
	for ; ; now = now.Add(time.Second) {
		name := path + "." + now.Format(timestamp)
		_, plain := os.Lstat(name)
		_, compressed := os.Lstat(name + ".gz")
		if plain != nil && compressed != nil {
			return name
		}
	}
}

// trim removes the oldest rotated files of a log until at most keep are left that take no more than maxFiles*maxSize, and compresses those. A file that a
// container wrote quickly may be larger than all files may be together, and would take too long to compress. Files that are removed meanwhile, with
// their pod, are no error.
func trim(path string, keep int) error {
	files, err := filepath.Glob(path + ".*")
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(name string) bool { // remove what an interrupted compression has left
		if !strings.HasSuffix(name, ".tmp") {
			return false
		}
		err := os.Remove(name)
		return err == nil || errors.Is(err, os.ErrNotExist)
	})
	slices.Sort(files)
	totalSize := func(names []string) (sum int64) {
		for _, name := range names {
			if info, err := os.Stat(name); err == nil {
				sum += info.Size()
			}
		}
		return sum
	}
	for len(files) > 0 && (len(files) > keep || totalSize(files) > maxFiles*maxSize) {
		if err := os.Remove(files[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		files = files[1:]
	}
	for _, name := range files {
		if !strings.HasSuffix(name, ".gz") {
			if err := compress(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// compress replaces a file with its gzip, name.gz.
func compress(name string) (err error) {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(name+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if removeErr := os.Remove(name + ".tmp"); !errors.Is(removeErr, os.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}()
	z := gzip.NewWriter(out)
	if _, err := io.Copy(z, in); err != nil {
		out.Close()
		return fmt.Errorf("failed to compress log %s: %w", name, err)
	}
	if err := errors.Join(z.Close(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name+".gz"); err != nil {
		return err
	}
	return os.Remove(name)
}
