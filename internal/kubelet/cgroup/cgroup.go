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

// Options of New.
type Options struct {
	Root         string              // the cgroup that kubepods is created in: "" or "/" for the root of the hierarchy, "/skiff/NAME" for a node among others
	Systemd      bool                // name groups as systemd's driver does: kubepods.slice/kubepods-burstable.slice/…
	PodPidsLimit int64               // the most processes a pod may have; no limit if 0 or less
	NoCPUQuota   bool                // do not enforce CPU limits
	CPUPeriod    time.Duration       // the CFS period; 100 ms if 0
	Allocatable  corev1.ResourceList // what all pods together may use: cpu, memory, and pid if given
	Hierarchies  []Hierarchy         // the hierarchies that are mounted on this machine if empty
	Log          *slog.Logger
}

// Manager creates, measures and removes the cgroups of a node's pods. It is safe for concurrent use; calls for one pod must not overlap.
type Manager struct {
	opts        Options
	version     int
	hierarchies []Hierarchy
	pageSizes   []int64
	remove      func(dir string) error

	mu                sync.Mutex
	allocatable       corev1.ResourceList
	limitsSet         map[types.UID]bool  // the pods whose limits this process has written
	burstableRequests map[types.UID]int64 // the CPU requests of burstable pods, in millicores
	burstableShares   uint64              // the CPU shares last written for all burstable pods
}

// New finds the machine's hierarchies. It creates no cgroups.
func New(opts Options) (*Manager, error) {
	m := &Manager{opts: opts, hierarchies: opts.Hierarchies, remove: os.Remove, allocatable: opts.Allocatable,
		limitsSet: map[types.UID]bool{}, burstableRequests: map[types.UID]int64{}}
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

// Version returns the cgroup version in use, 1 or 2.
func (m *Manager) Version() int { return m.version }

// Setup creates kubepods and the cgroups of the burstable and besteffort classes. It is called once at start and may be called again.
func (m *Manager) Setup() error {
	for _, class := range classes {
		if _, err := m.make(m.classPath(class)); err != nil {
			return fmt.Errorf("failed to create the cgroup of all %s pods: %w", class, err)
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

// SetAllocatable bounds what all pods together may use. A memory limit below what they use now is rejected by the kernel; the caller retries
// when pods have been evicted.
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
		return fmt.Errorf("failed to set the limits of all pods: %w", err)
	}
	return nil
}

// Ensure creates a pod's cgroup with its limits and returns its path, the sandbox's cgroup parent for the runtime. It does nothing for a
// cgroup that it has created before.
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
	known := m.limitsSet[pod.UID]
	m.limitsSet[pod.UID] = true
	err = m.count(pod)
	m.mu.Unlock()
	if err == nil && (!known || made) {
		err = m.apply(path, m.podResources(pod))
	}
	if err == nil {
		return path, nil
	}
	if !made {
		// Its containers may run already: an earlier process has set its limits.
		m.opts.Log.Warn("failed to set the limits of a running pod again", "pod", pod.Namespace+"/"+pod.Name, "err", err)
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

// Parent returns the path of a pod's cgroup, whether it exists or not.
func (m *Manager) Parent(pod *corev1.Pod) string { return m.path(class(pod), podName(pod.UID)) }

func checkUID(uid types.UID) error {
	if uid == "" || strings.ContainsAny(string(uid), "/_.\x00") {
		return fmt.Errorf("the pod's UID %q cannot name a control group", uid)
	}
	return nil
}
