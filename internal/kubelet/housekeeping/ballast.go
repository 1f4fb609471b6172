package housekeeping

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/machine"
)

// On a disk that is full to the last byte a pod cannot even be stopped: the runtime cannot store that its containers have exited. So the kubelet keeps a
// ballast file that it can remove then, and evicts in another order: it kills the pod's processes, removes the ballast and the pod's volumes, and then stops
// the pod as always.
const (
	ballastSize = 64 << 20
	// diskFullBytes is how many free bytes are so few that the disk counts as full.
	diskFullBytes = 16 << 20
)

// isDiskFull reports whether a shortage is that of a disk with no room left at all.
func isDiskFull(s eviction.Shortage) bool {
	return s.Condition == corev1.NodeDiskPressure && s.Resource == corev1.ResourceEphemeralStorage && s.Available.Value() < diskFullBytes
}

func (m *Manager) ballastPath() string { return filepath.Join(m.options.RootDir, "ballast") }

// keepBallast creates the ballast file if there is none and the disk has plenty of room.
func (m *Manager) keepBallast(shortages []eviction.Shortage) {
	if slices.ContainsFunc(shortages, func(s eviction.Shortage) bool { return s.Condition == corev1.NodeDiskPressure }) {
		return
	}
	if _, free, err := machine.DiskSpace(m.options.RootDir); err != nil || free < 4*ballastSize {
		return
	}
	if _, err := os.Stat(m.ballastPath()); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := allocateFile(m.ballastPath(), ballastSize); err != nil {
		m.log.Warn("failed to create the ballast file that is kept for a full disk", "path", m.ballastPath(), "error", err)
		m.RemoveBallast()
	}
}

// RemoveBallast removes the ballast file, so that a pod can be stopped on a full disk.
func (m *Manager) RemoveBallast() {
	if err := os.Remove(m.ballastPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("failed to remove the ballast file that is kept for a full disk", "path", m.ballastPath(), "error", err)
	}
}
