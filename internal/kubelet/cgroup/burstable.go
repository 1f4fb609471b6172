package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Burstable pods share a group whose weight is the sum of what they request: against other classes they weigh as much as they would alone.
// The sum changes as pods come and go.

// count notes a burstable pod's CPU request. Callers hold mu.
func (m *Manager) count(pod *corev1.Pod) error {
	if class(pod) != corev1.PodQOSBurstable {
		return nil
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	m.burstableRequests[pod.UID] = requests.Cpu().MilliValue()
	return m.weighBurstable()
}

// countBurstable notes the CPU requests of pods that an earlier process has started, by their shares: precise enough until their workers
// call Ensure. Callers hold mu.
func (m *Manager) countBurstable() {
	dir, _ := m.dir("cpu", m.classPath(corev1.PodQOSBurstable))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		uid, ok := m.uid(corev1.PodQOSBurstable, e.Name())
		if _, known := m.burstableRequests[uid]; !ok || known || !e.IsDir() {
			continue
		}
		if shares, err := readNumber(filepath.Join(dir, e.Name(), "cpu.shares")); err == nil {
			m.burstableRequests[uid] = sharesToMilliCPU(shares)
		} else if weight, err := readNumber(filepath.Join(dir, e.Name(), "cpu.weight")); err == nil {
			m.burstableRequests[uid] = sharesToMilliCPU(weightToShares(weight))
		}
	}
}

// weighBurstable writes the CPU shares of all burstable pods, if they have changed. Callers hold mu.
func (m *Manager) weighBurstable() error {
	var sum int64
	for _, milli := range m.burstableRequests {
		sum += milli
	}
	shares := MilliCPUToShares(sum)
	if shares == m.burstableShares {
		return nil
	}
	err := m.apply(m.classPath(corev1.PodQOSBurstable), m.classResources(shares))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // removed while the node is taken down
	}
	if err != nil {
		return fmt.Errorf("failed to set the CPU shares of all burstable pods: %w", err)
	}
	m.burstableShares = shares
	return nil
}
