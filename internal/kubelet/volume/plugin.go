package volume

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Plugin mounts the volumes of a kind that this package does not mount itself: those that CSI drivers serve.
//
// What a plugin has mounted it finds again on the disk: TearDown works in a process that has set up nothing.
type Plugin interface {
	// Supports reports whether the plugin mounts a volume: that of a PersistentVolume, or of the pod's spec if pv is nil.
	Supports(v *corev1.Volume, pv *corev1.PersistentVolume) bool
	// SetUp makes a volume of a pod ready for its containers. It is called again and again while the pod runs, and mounts nothing twice. Its errors
	// are of type Failure. Calls for one pod may overlap, for one volume of it they do not.
	SetUp(ctx context.Context, r Request) (Mounted, error)
	// TearDown unmounts all volumes of a pod that the plugin has set up, also by another process, and removes what it has written about them. Paths
	// that were bound from these volumes, for a subPath, are not mounted any more.
	TearDown(ctx context.Context, uid types.UID) error
	// Usage returns what is used of a volume that is set up. measured is false if the plugin cannot tell.
	Usage(ctx context.Context, uid types.UID, name string) (u Usage, measured bool, err error)
}

// Request is a volume of a pod that a plugin is to set up.
type Request struct {
	Pod    *corev1.Pod
	Volume *corev1.Volume
	// Claim and PersistentVolume are nil if the pod's spec itself says what to mount.
	Claim            *corev1.PersistentVolumeClaim
	PersistentVolume *corev1.PersistentVolume
	ReadOnly         bool
}

// Name returns the name of the volume: that of the PersistentVolume, else that in the pod.
func (r *Request) Name() string {
	if r.PersistentVolume != nil {
		return r.PersistentVolume.Name
	}
	return r.Volume.Name
}

// Block reports whether the volume is a block device.
func (r *Request) Block() bool { return r.PersistentVolume != nil && isBlock(r.PersistentVolume) }

// FSGroup returns the group that the pod wants its volumes to belong to, nil if there is none.
func (r *Request) FSGroup() *int64 { return fsGroup(r.Pod) }

// Mounted is a volume that a plugin has set up.
type Mounted struct {
	Path     string // the directory or block device on the node
	ReadOnly bool
	SetGroup bool // the files are to belong to the pod's fsGroup, and the plugin has not seen to that
}

// plugin returns the plugin for a volume, nil if there is none.
func (m *Manager) plugin(v *corev1.Volume, pv *corev1.PersistentVolume) Plugin {
	for _, p := range m.opts.Plugins {
		if p.Supports(v, pv) {
			return p
		}
	}
	return nil
}

// setUpByPlugin has a plugin set up a volume, and gives what is in it to the pod's group if that was not done before.
func (m *Manager) setUpByPlugin(ctx context.Context, p Plugin, r Request) (volumeState, error) {
	mounted, err := p.SetUp(ctx, r)
	if err != nil {
		return volumeState{}, err
	}
	s := volumeState{name: r.Name(), path: mounted.Path, readOnly: mounted.ReadOnly, device: r.Block(), managed: !mounted.ReadOnly && !r.Block(), plugin: p}
	if r.PersistentVolume != nil {
		s.once = isOnePod(r.PersistentVolume)
	}
	if before, ok := m.ready(r.Pod.UID, r.Volume.Name); ok && before.path == s.path {
		return s, nil
	}
	group := r.FSGroup()
	if group == nil || !mounted.SetGroup || s.readOnly || s.device {
		return s, nil
	}
	info, err := os.Stat(s.path)
	if err == nil && wantsGroup(r.Pod, info) {
		err = setGroup(ctx, s.path, *group, false)
	}
	if err != nil {
		return volumeState{}, &Failure{Volume: r.Name(), Stage: "MountVolume.SetUp failed", Err: fmt.Errorf("applyFSGroup failed for vol %s: %w", r.Name(), err)}
	}
	return s, nil
}

// tearDownPlugins has every plugin unmount what it has mounted for a pod.
func (m *Manager) tearDownPlugins(ctx context.Context, uid types.UID) error {
	var failed []error
	for _, p := range m.opts.Plugins {
		failed = append(failed, p.TearDown(ctx, uid))
	}
	return errors.Join(failed...)
}
