package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/volume"
)

const (
	// attachPoll is how often it is checked whether a volume is attached, while a pod waits for it.
	attachPoll = 300 * time.Millisecond
	// attachWait is how long SetUp waits for that; the pod's worker calls it again.
	attachWait = 10 * time.Second
)

// inUse are the volumes of this node that a controller attaches, and must not detach.
type inUse struct {
	mu       sync.Mutex
	pods     map[corev1.UniqueVolumeName]map[types.UID]bool
	reported map[corev1.UniqueVolumeName]bool // those that the API has been told of since they were added
}

func (u *inUse) add(name corev1.UniqueVolumeName, uid types.UID, changed func()) {
	u.mu.Lock()
	_, known := u.pods[name]
	if u.pods == nil {
		u.pods = map[corev1.UniqueVolumeName]map[types.UID]bool{}
	}
	if !known {
		u.pods[name] = map[types.UID]bool{}
	}
	u.pods[name][uid] = true
	u.mu.Unlock()
	if !known {
		changed()
	}
}

func (u *inUse) remove(name corev1.UniqueVolumeName, uid types.UID, changed func()) {
	u.mu.Lock()
	_, known := u.pods[name]
	delete(u.pods[name], uid)
	gone := known && len(u.pods[name]) == 0
	if gone {
		delete(u.pods, name)
		delete(u.reported, name)
	}
	u.mu.Unlock()
	if gone {
		changed()
	}
}

// removePod removes what a pod waited for and did not get.
func (u *inUse) removePod(uid types.UID, changed func()) {
	u.mu.Lock()
	var names []corev1.UniqueVolumeName
	for name, pods := range u.pods {
		if pods[uid] {
			names = append(names, name)
		}
	}
	u.mu.Unlock()
	for _, name := range names {
		u.remove(name, uid, changed)
	}
}

// VolumesInUse returns what the node's status says in volumesInUse: while a volume is there, no controller detaches it.
func (p *Plugin) VolumesInUse() []corev1.UniqueVolumeName {
	p.inUse.mu.Lock()
	defer p.inUse.mu.Unlock()
	var names []corev1.UniqueVolumeName
	for name := range p.inUse.pods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// VolumesInUseReported notes that the API has a node status that was computed with these volumes in use.
func (p *Plugin) VolumesInUseReported(names []corev1.UniqueVolumeName) {
	u := &p.inUse
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reported == nil {
		u.reported = map[corev1.UniqueVolumeName]bool{}
	}
	for _, name := range names {
		if u.pods[name] != nil {
			u.reported[name] = true
		}
	}
}

func (u *inUse) isReported(name corev1.UniqueVolumeName) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reported[name]
}

// Restore finds the volumes that another process of this node has set up, so that VolumesInUse has them before the node's status is reported.
func (p *Plugin) Restore() error {
	all, err := p.records()
	if err != nil {
		return fmt.Errorf("failed to read what CSI drivers have mounted: %w", err)
	}
	for uid, list := range all {
		for _, r := range list {
			if r.Attached != "" {
				p.inUse.add(unique(r.Driver, r.Handle), uid, func() {})
			}
		}
	}
	return nil
}

// awaitAttached waits until a controller has attached the volume, and notes what it says of that. The controller removes a volume from volumesAttached and
// then reads volumesInUse, before it detaches the volume: here volumesInUse is written first, and volumesAttached then read from the API. What was observed of the node may be
// from before that, when a pod that is gone had the volume.
func (p *Plugin) awaitAttached(ctx context.Context, m *mount) error {
	waits := func(text string) error {
		return &volume.Failure{Volume: m.record.Name, Err: errors.New(text), Waits: true}
	}
	for deadline := time.Now().Add(attachWait); ; {
		var err error
		switch {
		case !p.inUse.isReported(m.unique()):
			err = waits("Volume has not been added to the list of VolumesInUse in the node's volume status")
		case !isAttached(p.options.Node(), m.unique()):
			err = waits("Volume not attached according to node status")
		default:
			node, getErr := p.options.Source.Node(ctx)
			if getErr == nil && isAttached(node, m.unique()) {
				return p.attached(ctx, m)
			}
			err = waits("Volume not attached according to node status")
			if getErr != nil {
				err = m.failed(attaching, fmt.Errorf("volume %v: failed to read what is attached to the node: %w", m.record.Handle, getErr))
			}
		}
		if time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(attachPoll):
		}
	}
}

func isAttached(node *corev1.Node, name corev1.UniqueVolumeName) bool {
	return slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name })
}

// attached checks the VolumeAttachment of a volume, and takes what the driver's controller wants to have told to its node service.
func (p *Plugin) attached(ctx context.Context, m *mount) error {
	id := m.record.AttachmentID
	attachment, err := p.options.Source.VolumeAttachment(ctx, id)
	switch {
	case err != nil:
		return m.failed(attaching, fmt.Errorf("volume %v has GET error for volume attachment %v: %w", m.record.Handle, id, err))
	case attachment.DeletionTimestamp != nil:
		return m.failed(attaching, errors.New("volume attachment is being deleted"))
	case attachment.Status.AttachError != nil && !attachment.Status.Attached:
		return m.failed(attaching, errors.New(attachment.Status.AttachError.Message))
	case !attachment.Status.Attached:
		return m.failed(attaching, fmt.Errorf("volume %v is not attached by VolumeAttachment %v", m.record.Handle, id))
	}
	m.publishContext = attachment.Status.AttachmentMetadata
	return nil
}
