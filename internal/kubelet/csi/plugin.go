package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/volume"
)

// Source reads what the API says of volumes and drivers. For an object that does not exist it returns an apierrors.IsNotFound error.
type Source interface {
	// Node reads this node from the API, not from what was observed of it.
	Node(ctx context.Context) (*corev1.Node, error)
	CSIDriver(name string) (*storagev1.CSIDriver, error)
	VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// PatchClaimStatus applies a strategic merge patch to the status of a claim.
	PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.PersistentVolumeClaim, error)
	Token(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Options of New.
type Options struct {
	Root     string // the kubelet's directory
	NodeName string
	Source   Source
	// Node returns the node as it was observed last.
	Node func() *corev1.Node
	// InUseChanged is called when VolumesInUse returns something else.
	InUseChanged func()
	// Event records an Event about a pod or a claim.
	Event func(about runtime.Object, kind, reason, message string)
	Log   *slog.Logger
}

// Plugin mounts the volumes of CSI drivers. It is safe for concurrent use.
type Plugin struct {
	options Options
	drivers drivers
	locks   keyedLocks
	inUse   inUse

	mu        sync.Mutex
	published map[types.UID]map[string]*mount // what this process has published, by pod and name of the volume
	staged    map[string]bool                 // the paths that this process has staged volumes at
}

var _ volume.Plugin = (*Plugin)(nil)

// New returns a plugin with the drivers that run in this process.
func New(o Options, inProcess map[string]csi.NodeServer) *Plugin {
	p := &Plugin{options: o, published: map[types.UID]map[string]*mount{}, staged: map[string]bool{}}
	for name, node := range inProcess {
		p.drivers.set(name, node)
	}
	return p
}

// Supports reports whether the volume is one of a CSI driver.
func (p *Plugin) Supports(v *corev1.Volume, pv *corev1.PersistentVolume) bool {
	if pv != nil {
		return pv.Spec.CSI != nil
	}
	return v.CSI != nil
}

// SetUp stages a volume, if no other pod has it on this node, and publishes it for the pod. One that this process has published stays as it is,
// unless the driver wants to be told again.
func (p *Plugin) SetUp(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	m, err := p.newMount(&r)
	if err != nil {
		return volume.Mounted{}, err
	}
	defer p.locks.lock(m.record.Driver + "^" + m.record.Handle)()
	before := p.publishedFor(r.Pod.UID, m.record.Name)
	if before != nil {
		m.size, m.stagingPath = before.size, before.stagingPath
	}
	if before != nil && !m.republish && expansionOf(r.Claim, r.PersistentVolume, before.size) == nil {
		return before.mounted(), nil
	}
	d, err := p.drivers.get(m.record.Driver)
	if err != nil {
		if m.ephemeral() {
			return volume.Mounted{}, m.failed(publishing, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: %w", err))
		}
		return volume.Mounted{}, m.failed(staging, fmt.Errorf("kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: %w", err))
	}
	m.driver = d
	if err := p.setUp(ctx, m, before != nil); err != nil {
		return volume.Mounted{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.published[r.Pod.UID] == nil {
		p.published[r.Pod.UID] = map[string]*mount{}
	}
	p.published[r.Pod.UID][m.record.Name] = m
	return m.mounted(), nil
}

func (p *Plugin) publishedFor(uid types.UID, name string) *mount {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.published[uid][name]
}

func (p *Plugin) isStaged(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.staged[path]
}

func (p *Plugin) setStaged(path string, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if yes {
		p.staged[path] = true
	} else {
		delete(p.staged, path)
	}
}

// setUp has a volume attached, staged and published. again says that this process has published it before.
func (p *Plugin) setUp(ctx context.Context, m *mount, again bool) error {
	if m.attach {
		m.record.Attached = "true"
		p.inUse.add(m.unique(), m.pod.UID, p.options.InUseChanged)
		if err := p.awaitAttached(ctx, m); err != nil {
			return err
		}
	}
	if m.mode() == corev1.ReadWriteOncePod {
		if others, err := p.usedByOthers(m.pod.UID, &m.record); err != nil || others {
			return m.failed(publishing, cmp.Or(err, errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")))
		}
	}
	dir := p.podDir(m.pod.UID, m.record.Name)
	old, err := load(dir)
	if err != nil {
		return m.failed(publishing, err)
	}
	if old != nil {
		m.record.Published = old.Published
	}
	if err := m.record.save(dir); err != nil {
		return m.failed(publishing, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to save volume info data: %w", err))
	}
	if !again {
		if err := p.stage(ctx, m); err != nil {
			return err
		}
		if m.stagingPath != "" {
			if err := p.expand(ctx, m, m.stagingPath, true); err != nil {
				return err
			}
		}
	}
	if !again || m.republish {
		if err := p.publish(ctx, m); err != nil {
			return err
		}
	}
	return p.expand(ctx, m, m.target, false)
}

// TearDown unpublishes all volumes of a pod, and unstages those that no other pod on the node has.
func (p *Plugin) TearDown(ctx context.Context, uid types.UID) error {
	list, err := p.recordsOf(uid)
	failed := []error{err}
	for _, r := range list {
		failed = append(failed, p.tearDown(ctx, uid, r))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.published, uid)
	p.mu.Unlock()
	p.inUse.removePod(uid, p.options.InUseChanged)
	return removeEmpty(p.podDir(uid, ""))
}

func (p *Plugin) tearDown(ctx context.Context, uid types.UID, r *record) error {
	defer p.locks.lock(r.Driver + "^" + r.Handle)()
	d, err := p.drivers.get(r.Driver)
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: %w", err)
	}
	p.mu.Lock()
	delete(p.published[uid], r.Name) // whatever becomes of the calls, it is not published for sure any more
	p.mu.Unlock()
	if err := p.unpublish(ctx, d, uid, r); err != nil {
		return err
	}
	others, err := p.usedByOthers(uid, r)
	if err != nil {
		return err
	}
	if !others && r.Mode != string(storagev1.VolumeLifecycleEphemeral) {
		if err := p.unstage(ctx, d, r); err != nil {
			return err
		}
	}
	if err := remove(p.podDir(uid, r.Name)); err != nil {
		return err
	}
	p.inUse.remove(unique(r.Driver, r.Handle), uid, p.options.InUseChanged)
	return nil
}

// Usage returns what the driver says of a volume that is published.
func (p *Plugin) Usage(ctx context.Context, uid types.UID, name string) (u volume.Usage, measured bool, err error) {
	m := p.publishedFor(uid, name)
	if m == nil {
		return u, false, nil
	}
	if ok, err := m.driver.can(ctx, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS); err != nil || !ok {
		return u, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	response, err := m.driver.node.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: m.record.Handle, VolumePath: m.target, StagingTargetPath: m.stagingPath})
	if err != nil {
		return u, false, err
	}
	for _, usage := range response.GetUsage() {
		switch usage.GetUnit() {
		case csi.VolumeUsage_BYTES:
			u.Used, u.Available, u.Capacity = uint64(usage.Used), uint64(usage.Available), uint64(usage.Total)
		case csi.VolumeUsage_INODES:
			u.InodesUsed, u.InodesFree, u.InodesLimit = uint64(usage.Used), uint64(usage.Available), uint64(usage.Total)
		}
	}
	return u, true, nil
}

// removeEmpty removes a directory if it is empty, and does not mind one that is not there.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		return nil
	}
	return os.Remove(dir)
}

// keyedLocks are locks by name. One that nobody holds takes no memory.
type keyedLocks struct {
	mu   sync.Mutex
	held map[string]*keyedLock
}

type keyedLock struct {
	sync.Mutex
	users int
}

// lock locks a name, and returns what unlocks it.
func (l *keyedLocks) lock(name string) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*keyedLock{}
	}
	k := l.held[name]
	if k == nil {
		k = &keyedLock{}
		l.held[name] = k
	}
	k.users++
	l.mu.Unlock()
	k.Lock()
	return func() {
		k.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, name)
		}
	}
}

// accessMode returns the mode that the specification has for an access mode of Kubernetes.
func accessMode(mode corev1.PersistentVolumeAccessMode, multiWriter bool) csi.VolumeCapability_AccessMode_Mode {
	switch {
	case mode == corev1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == corev1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOnce && multiWriter:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOncePod && multiWriter:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == corev1.ReadWriteOnce, mode == corev1.ReadWriteOncePod:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
	return csi.VolumeCapability_AccessMode_UNKNOWN
}

// oneNode reports whether a volume is used by one node only: then its files are given to the pod's group.
func oneNode(modes []corev1.PersistentVolumeAccessMode) bool {
	return slices.Contains(modes, corev1.ReadWriteOnce) || slices.Contains(modes, corev1.ReadWriteOncePod)
}

// parent makes the directory that a path is in.
func parent(path string) error { return os.MkdirAll(filepath.Dir(path), 0o750) }
