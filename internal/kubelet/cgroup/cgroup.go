package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Options say where groups are made and what pods are held to.
type Options struct {
	Root         string              // group below which kubepods is made: "" or "/" for the top, "/skiff/NAME" for a node among others
	Systemd      bool                // name groups as systemd's driver does: kubepods.slice/kubepods-burstable.slice/…
	PodPidsLimit int64               // processes that a pod may have, without limit if 0 or less
	NoCPUQuota   bool                // let pods exceed their cpu limits while the node has time to spare
	CPUPeriod    time.Duration       // over which cpu limits hold; 100 ms if 0
	Allocatable  corev1.ResourceList // what all pods together may use: cpu, memory, and pid if given
	Hierarchies  []Hierarchy         // those mounted on this machine if empty
	Log          *slog.Logger
}

// Manager makes, measures and removes the groups of a node's pods. It is safe for concurrent use; calls about one pod must not overlap.
type Manager struct {
	opts        Options
	version     int
	hierarchies []Hierarchy
	pageSizes   []int64
	remove      func(dir string) error

	mu          sync.Mutex
	allocatable corev1.ResourceList
	set         map[types.UID]bool  // pods whose limits were written since this process started
	requests    map[types.UID]int64 // thousandths of a processor that burstable pods request
	burstable   uint64              // shares last written for them, so that an unchanged sum costs nothing
}

// New finds the machine's hierarchies. It makes nothing yet.
func New(opts Options) (*Manager, error) {
	m := &Manager{opts: opts, hierarchies: opts.Hierarchies, remove: os.Remove, allocatable: opts.Allocatable,
		set: map[types.UID]bool{}, requests: map[types.UID]int64{}}
	m.opts.CPUPeriod = cmp.Or(opts.CPUPeriod, 100*time.Millisecond)
	m.opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if err := checkRoot(opts.Root); err != nil {
		return nil, err
	}
	if len(m.hierarchies) == 0 {
		found, err := mounted()
		if err != nil {
			return nil, err
		}
		m.hierarchies = found
	}
	var err error
	if m.version, err = version(m.hierarchies); err != nil {
		return nil, err
	}
	m.pageSizes, err = pageSizes("/sys/kernel/mm/hugepages")
	return m, err
}

// Version returns 1 or 2.
func (m *Manager) Version() int { return m.version }

// Setup makes kubepods and the groups of the two lesser classes. It is called once at start and may be called again.
func (m *Manager) Setup() error {
	for _, class := range classes {
		if _, err := m.make(m.classPath(class)); err != nil {
			return fmt.Errorf("the control group of all %s pods: %w", class, err)
		}
	}
	m.mu.Lock()
	allocatable := m.allocatable
	m.mu.Unlock()
	if err := m.SetAllocatable(allocatable); err != nil {
		return err
	}
	if err := m.apply(m.classPath(corev1.PodQOSBestEffort), m.classResources(minShares)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countBurstable()
	return m.weighBurstable()
}

// SetAllocatable bounds what all pods together may use. A memory limit below what they use now is refused by the kernel; the caller tries
// again when pods have been evicted.
func (m *Manager) SetAllocatable(list corev1.ResourceList) error {
	m.mu.Lock()
	m.allocatable = list
	m.mu.Unlock()
	r := m.classResources(0)
	if cpu, ok := list[corev1.ResourceCPU]; ok {
		r.shares = MilliCPUToShares(cpu.MilliValue())
	}
	if memory, ok := list[corev1.ResourceMemory]; ok {
		r.memory = memory.Value()
	}
	if pids, ok := list["pid"]; ok {
		r.pids = pids.Value()
	}
	if err := m.apply(m.classPath(corev1.PodQOSGuaranteed), r); err != nil {
		return fmt.Errorf("limits of all pods: %w", err)
	}
	return nil
}

// Ensure makes a pod's group with its limits and returns its path, to be given to the runtime as the sandbox's parent. It does nothing for a
// group that it has made before.
func (m *Manager) Ensure(pod *corev1.Pod) (string, error) {
	if err := checkUID(pod.UID); err != nil {
		return "", err
	}
	path := m.Parent(pod)
	made, err := m.make(path)
	if err != nil {
		return "", fmt.Errorf("the pod's control group: %w", err)
	}
	m.mu.Lock()
	known := m.set[pod.UID]
	m.set[pod.UID] = true
	err = m.count(pod)
	m.mu.Unlock()
	if err == nil && (!known || made) {
		err = m.apply(path, m.podResources(pod))
	}
	if err == nil {
		return path, nil
	}
	if !made {
		// Its containers may run already: an earlier process set what it could then.
		m.opts.Log.Warn("limits of a pod that runs were not set again", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		return path, nil
	}
	return "", errors.Join(fmt.Errorf("the pod's limits: %w", err), m.Remove(pod.UID))
}

// Resize writes the limits of a pod whose resources have changed into its group.
func (m *Manager) Resize(pod *corev1.Pod) error {
	m.mu.Lock()
	err := m.count(pod)
	m.mu.Unlock()
	return errors.Join(err, m.apply(m.Parent(pod), m.podResources(pod)))
}

// Parent returns the path of a pod's group, whether it exists or not.
func (m *Manager) Parent(pod *corev1.Pod) string { return m.path(class(pod), podName(pod.UID)) }

func checkUID(uid types.UID) error {
	if uid == "" || strings.ContainsAny(string(uid), "/_.\x00") {
		return fmt.Errorf("the pod's UID %q cannot name a control group", uid)
	}
	return nil
}
