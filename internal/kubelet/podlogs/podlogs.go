package podlogs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

// Options of New.
type Options struct {
	Runtime  Runtime
	Dir      string // has a directory per pod: /var/log/pods
	LinksDir string // has a link to each container's log: /var/log/containers
	Log      *slog.Logger
}

// Runtime is the part of the container runtime that rotation needs.
type Runtime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ReopenContainerLog(ctx context.Context, id string) error
}

// Manager keeps the log files of the node's containers.
type Manager struct {
	options  Options
	log      *slog.Logger
	rotation sync.Mutex // held while a log is rotated
}

// New returns a manager. Rotation begins with Run.
func New(o Options) *Manager { return &Manager{options: o, log: o.Log} }

// PodDir returns the directory of a pod's logs.
func (m *Manager) PodDir(pod *corev1.Pod) string {
	return filepath.Join(m.options.Dir, fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID))
}

// path returns the path of a container's log.
func (m *Manager) path(c *runtimeapi.Container) string {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = c.Labels[cri.LabelPodName], c.Labels[cri.LabelPodNamespace], types.UID(c.Labels[cri.LabelPodUID])
	return filepath.Join(m.PodDir(pod), c.Labels[cri.LabelContainer], strconv.FormatUint(uint64(c.GetMetadata().GetAttempt()), 10)+".log")
}

// maxName is the longest file name that file systems allow.
const maxName = 255

// link returns the path of the link to a container's log.
func (m *Manager) link(pod, namespace, container, id string) string {
	const suffix = ".log"
	name := fmt.Sprintf("%s_%s_%s-%s", pod, namespace, container, id)
	return filepath.Join(m.options.LinksDir, name[:min(len(name), maxName-len(suffix))]+suffix)
}

// Link links a container's log where log collectors look for it.
func (m *Manager) Link(pod *corev1.Pod, container, id, log string) {
	if _, err := os.Stat(log); err != nil {
		return
	}
	link := m.link(pod.Name, pod.Namespace, container, id)
	if err := os.Symlink(log, link); err != nil && !os.IsExist(err) {
		m.log.Warn("failed to link a container's log", "link", link, "error", err)
	}
}

// RemoveLink removes the link to a container's log.
func (m *Manager) RemoveLink(pod, namespace, container, id string) error {
	if err := os.Remove(m.link(pod, namespace, container, id)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// Remove removes a log and the rotated files of it.
func (m *Manager) Remove(path string) {
	if path == "" {
		return
	}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		return
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			m.log.Warn("failed to remove a container's log", "error", err)
		}
	}
}

// RemoveDangling removes the logs of pods that do not exist any more, and the links to logs that do not.
func (m *Manager) RemoveDangling(podExists func(types.UID) bool) {
	entries, err := os.ReadDir(m.options.Dir)
	if err == nil {
		for _, e := range entries {
			name := e.Name()
			if uid := name[strings.LastIndexByte(name, '_')+1:]; !podExists(types.UID(uid)) {
				if err := os.RemoveAll(filepath.Join(m.options.Dir, name)); err != nil {
					m.log.Warn("failed to remove the logs of a deleted pod", "uid", uid, "error", err)
				}
			}
		}
	}
	links, err := filepath.Glob(filepath.Join(m.options.LinksDir, "*.log"))
	if err != nil {
		return
	}
	for _, link := range links {
		if _, err := os.Stat(link); os.IsNotExist(err) {
			if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
				m.log.Warn("failed to remove the link to a deleted log", "error", err)
			}
		}
	}
}

// Size returns how many bytes the logs of a container take, rotated ones included.
func (m *Manager) Size(pod *corev1.Pod, container string) (size int64) {
	files, err := os.ReadDir(filepath.Join(m.PodDir(pod), container))
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

var logName = regexp.MustCompile(`^(\d+)\.log(\..*)?$`)

// Starts returns how often a container was started according to its log files, for a runtime that has lost its state.
func (m *Manager) Starts(pod *corev1.Pod, container string) int {
	files, err := os.ReadDir(filepath.Join(m.PodDir(pod), container))
	if err != nil {
		return 0
	}
	starts := 0
	for _, f := range files {
		if match := logName.FindStringSubmatch(f.Name()); match != nil && !f.IsDir() {
			if n, err := strconv.Atoi(match[1]); err == nil {
				starts = max(starts, n+1)
			}
		}
	}
	return starts
}
