package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/machine"
)

// When a disk is full to the last byte, a pod cannot even be ended: the runtime cannot write down that its containers have. So the kubelet keeps a file that
// it can do without, and ends a pod that has to go then in another order: it kills what runs in it, removes what it has on the disk, and goes on as
// always.
const (
	ballastSize = 64 << 20
	// noRoom is how little of the disk is left when nothing works as usual any more.
	noRoom = 16 << 20
)

// isFull says whether there is nothing left of the disk.
func isFull(s eviction.Shortage) bool {
	return s.Condition == corev1.NodeDiskPressure && s.Resource == corev1.ResourceEphemeralStorage && s.Available.Value() < noRoom
}

func (k *Kubelet) ballast() string { return filepath.Join(k.options.RootDir, "ballast") }

// keepBallast makes the ballast if the disk has plenty of room.
func (k *Kubelet) keepBallast(short []eviction.Shortage) {
	if slices.ContainsFunc(short, func(s eviction.Shortage) bool { return s.Condition == corev1.NodeDiskPressure }) {
		return
	}
	if _, free, err := machine.DiskSpace(k.options.RootDir); err != nil || free < 4*ballastSize {
		return
	}
	if _, err := os.Stat(k.ballast()); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := makeBallast(k.ballast(), ballastSize); err != nil {
		k.log.Warn("no room was set aside for when the disk is full", "error", err)
		k.dropBallast()
	}
}

func (k *Kubelet) dropBallast() {
	if err := os.Remove(k.ballast()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("the room that was set aside for when the disk is full stays so", "error", err)
	}
}

// makeRoom makes room on a full disk at the cost of a pod.
func (w *worker) makeRoom(ctx context.Context) error {
	if err := w.k.options.Cgroups.Remove(w.uid); err != nil { // nothing of it runs now, and nothing of it writes
		return err
	}
	w.k.dropBallast()
	return w.k.options.Volumes.TearDown(ctx, w.uid)
}

func (w *worker) isFull() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.full
}
