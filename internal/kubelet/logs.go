package kubelet

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

// When logs are rotated, and how many files a container may have.
const (
	logsEvery   = 10 * time.Second
	logsSoon    = time.Second // is how often it is looked whether one is full before that: some containers write a lot
	maxLogSize  = 10 << 20
	maxLogFiles = 5
	logStamp    = "20060102-150405"
)

// rotateLogs keeps containers from filling the disk with what they write.
func (k *Kubelet) rotateLogs(ctx context.Context) {
	for due := time.Now().Add(logsEvery); ; {
		sleep(ctx, logsSoon)
		if ctx.Err() != nil {
			return
		}
		if time.Now().Before(due) && !k.anyLogFull() {
			continue
		}
		due = time.Now().Add(logsEvery)
		running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
		list, err := k.options.Runtime.ListContainers(ctx, running)
		if err != nil {
			continue
		}
		for _, c := range list {
			if err := k.rotate(ctx, c); err != nil && ctx.Err() == nil {
				k.log.Warn("rotating a container's log", "container", c.Id, "error", err)
			}
		}
	}
}

// anyLogFull says whether there is a log that is to be rotated, or was of a container that has ended.
func (k *Kubelet) anyLogFull() bool {
	logs, err := filepath.Glob(filepath.Join(k.options.LogDir, "*", "*", "*.log"))
	return err == nil && slices.ContainsFunc(logs, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() >= maxLogSize
	})
}

// rotate begins another log for a container whose log is full. Only one rotation runs at a time.
func (k *Kubelet) rotate(ctx context.Context, c *runtimeapi.Container) error {
	k.rotating.Lock()
	defer k.rotating.Unlock()
	path := k.logPath(c)
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) { // a rotation that was broken off
		return k.options.Runtime.ReopenContainerLog(ctx, c.Id)
	}
	if err != nil || info.Size() < maxLogSize {
		return err
	}
	if err := trimLogs(path, maxLogFiles-2); err != nil { // the one that is rotated now and the new one come on top
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
	if err := k.options.Runtime.ReopenContainerLog(ctx, c.Id); err != nil {
		// Without a new file the container still writes into the old one.
		return errors.Join(err, os.Rename(rotated, path))
	}
	return nil
}

// rotatedName is a name for a log that is rotated now. No log that was rotated before has it, even if the clock was set back since.
func rotatedName(path string, now time.Time) string {
	for ; ; now = now.Add(time.Second) {
		name := path + "." + now.Format(logStamp)
		_, plain := os.Lstat(name)
		_, compressed := os.Lstat(name + ".gz")
		if plain != nil && compressed != nil {
			return name
		}
	}
}

// logPath is where a container's log is.
func (k *Kubelet) logPath(c *runtimeapi.Container) string {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = c.Labels[cri.LabelPodName], c.Labels[cri.LabelPodNamespace], types.UID(c.Labels[cri.LabelPodUID])
	return filepath.Join(k.podLogDir(pod), c.Labels[cri.LabelContainer], strconv.FormatUint(uint64(c.GetMetadata().GetAttempt()), 10)+".log")
}

// trimLogs compresses rotated logs and removes the oldest, so that so many are left, and they take no more than they should: one that a container wrote
// in a hurry may be larger than all are to be together, and it takes too long to compress it. Logs that are removed meanwhile, with their pod, are no error.
func trimLogs(path string, keep int) error {
	all, err := filepath.Glob(path + ".*")
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(name string) bool { // what a compression that was broken off has left
		if !strings.HasSuffix(name, ".tmp") {
			return false
		}
		err := os.Remove(name)
		return err == nil || errors.Is(err, os.ErrNotExist)
	})
	slices.Sort(all)
	size := func(names []string) (sum int64) {
		for _, name := range names {
			if info, err := os.Stat(name); err == nil {
				sum += info.Size()
			}
		}
		return sum
	}
	for len(all) > 0 && (len(all) > keep || size(all) > maxLogFiles*maxLogSize) {
		if err := os.Remove(all[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		all = all[1:]
	}
	for _, name := range all {
		if !strings.HasSuffix(name, ".gz") {
			if err := compressLog(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func compressLog(name string) (err error) {
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
		if left := os.Remove(name + ".tmp"); !errors.Is(left, os.ErrNotExist) {
			err = errors.Join(err, left)
		}
	}()
	z := gzip.NewWriter(out)
	if _, err := io.Copy(z, in); err != nil {
		out.Close()
		return fmt.Errorf("compressing %s: %w", name, err)
	}
	if err := errors.Join(z.Close(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name+".gz"); err != nil {
		return err
	}
	return os.Remove(name)
}

// removeLogs removes a log and all that was rotated of it.
func (k *Kubelet) removeLogs(path string) {
	if path == "" {
		return
	}
	all, err := filepath.Glob(path + "*")
	if err != nil {
		return
	}
	for _, name := range all {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			k.log.Warn("removing a log", "error", err)
		}
	}
}

// logSize is how much the logs of a container take.
func logSize(dir, container string) (size int64) {
	files, err := os.ReadDir(filepath.Join(dir, container))
	if err != nil {
		return 0
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}
