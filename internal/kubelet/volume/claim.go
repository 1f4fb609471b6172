package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

const claimProtection = "kubernetes.io/pvc-protection"

// claim sets up the PersistentVolume behind a PersistentVolumeClaim.
func (m *Manager) claim(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (volumeState, error) {
	claim, pv, readOnly, err := m.claimed(ctx, pod, v)
	if err != nil {
		return volumeState{}, &Failure{Volume: v.Name, Err: fmt.Errorf(
			"Unable to attach or mount volumes: unmounted volumes=[%s], unattached volumes=[], failed to process volumes=[%s]: %w", v.Name, v.Name, err)}
	}
	r := volumeState{name: pv.Name, readOnly: readOnly, device: isBlock(pv), once: isOnePod(pv)}
	fail := func(stage string, err error) (volumeState, error) {
		return volumeState{}, &Failure{Volume: pv.Name, Stage: stage, Err: err}
	}
	if err := m.onThisNode(pv); err != nil {
		return fail("MountVolume.NodeAffinity check failed", err)
	}
	if r.once && m.usedElsewhere(pod.UID, pv.Name) {
		return fail("MountVolume.SetUp failed", errOnePod)
	}
	if p := m.plugin(v, pv); p != nil {
		return m.setUpByPlugin(ctx, p, Request{Pod: pod, Volume: v, Claim: claim, PersistentVolume: pv, ReadOnly: readOnly})
	}
	switch source := pv.Spec.PersistentVolumeSource; {
	case source.HostPath != nil && !r.device:
		r.path, err = source.HostPath.Path, checkHostPath(source.HostPath)
	case source.Local != nil && r.device:
		r.path, err = source.Local.Path, checkType(source.Local.Path, corev1.HostPathBlockDev)
	case source.Local != nil:
		if r.once {
			if bound, err := m.boundElsewhere(pv.Name, pod.UID); err != nil || bound { // by a pod that another process has set up
				return fail("MountVolume.SetUp failed", cmp.Or(err, errOnePod))
			}
		}
		r.path, r.managed = m.dir(pod.UID, "local-volume", pv.Name), !readOnly
		err = m.local(ctx, r.path, pod, pv, readOnly)
	case source.NFS != nil && !r.device:
		r.path, r.readOnly = m.dir(pod.UID, "nfs", pv.Name), readOnly || source.NFS.ReadOnly
		err = m.nfs(ctx, r.path, source.NFS, r.readOnly, pv.Spec.MountOptions)
	case source.CSI != nil:
		return fail("MountVolume.MountDevice failed", fmt.Errorf("kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: "+
			"driver name %s not found in the list of registered CSI drivers", source.CSI.Driver))
	default:
		return fail("MountVolume.FindPluginBySpec failed", errors.New("no volume plugin matched"))
	}
	if err != nil {
		return fail("MountVolume.SetUp failed", err)
	}
	return r, nil
}

var errOnePod = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// isOnePod reports whether a PersistentVolume may be used by one pod only.
func isOnePod(pv *corev1.PersistentVolume) bool {
	return slices.Equal(pv.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod})
}

// claimed returns the claim and the PersistentVolume that a volume of a pod refers to, and whether the pod may only read it.
func (m *Manager) claimed(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, bool, error) {
	name, readOnly := pod.Name+"-"+v.Name, false
	if source := v.PersistentVolumeClaim; source != nil {
		name, readOnly = source.ClaimName, source.ReadOnly
	}
	wrap := func(err error) error { return fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err) }
	claim, err := m.opts.Source.Claim(ctx, pod.Namespace, name)
	switch {
	case err != nil:
		return nil, nil, false, wrap(fmt.Errorf("failed to fetch PVC from API server: %w", err))
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, claimProtection):
		return nil, nil, false, wrap(errors.New("PVC is being deleted"))
	case claim.Status.Phase != corev1.ClaimBound:
		return nil, nil, false, wrap(errors.New("PVC is not bound"))
	case claim.Spec.VolumeName == "":
		return nil, nil, false, wrap(errors.New("PVC has empty pvc.Spec.VolumeName"))
	case v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod):
		return nil, nil, false, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, claim.Name, pod.Namespace, pod.Name)
	}
	pv, err := m.opts.Source.PersistentVolume(ctx, claim.Spec.VolumeName)
	switch {
	case err != nil:
		return nil, nil, false, wrap(fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err))
	case pv.Spec.ClaimRef == nil:
		return nil, nil, false, wrap(fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name))
	case pv.Spec.ClaimRef.UID != claim.UID:
		return nil, nil, false, wrap(fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s",
			pv.Name, pv.Spec.ClaimRef.UID, claim.UID))
	}
	mounted, device := usedAs(pod, v.Name)
	switch {
	case mounted && isBlock(pv):
		return nil, nil, false, fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", v.Name)
	case device && !isBlock(pv):
		return nil, nil, false, fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", v.Name)
	}
	return claim, pv, readOnly, nil
}

// usedAs reports whether containers mount a volume, and whether they take it as a device.
func usedAs(pod *corev1.Pod, volume string) (mounted, device bool) {
	for c := range containers(pod) {
		mounted = mounted || slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
		device = device || slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == volume })
	}
	return mounted, device
}

func isBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

func (m *Manager) onThisNode(pv *corev1.PersistentVolume) error {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	selector, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	if err != nil {
		return err
	}
	if !selector.Match(m.opts.Node()) {
		return errors.New("no matching NodeSelectorTerms")
	}
	return nil
}

func (m *Manager) usedElsewhere(uid types.UID, pv string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, volumes := range m.pods {
		for _, r := range volumes {
			if other != uid && r.once && r.name == pv {
				return true
			}
		}
	}
	return false
}

func checkType(path string, want corev1.HostPathType) error {
	return checkHostPath(&corev1.HostPathVolumeSource{Path: path, Type: &want})
}

// local binds a directory of the node into the pod's, or mounts a disk there. Its group is set when no other pod has it: then no pod writes in it.
func (m *Manager) local(ctx context.Context, dir string, pod *corev1.Pod, pv *corev1.PersistentVolume, readOnly bool) error {
	source := pv.Spec.Local.Path
	if err := noBacksteps(source); err != nil {
		return fmt.Errorf("invalid path: %s %w", source, err)
	}
	if there, err := mountedAt(dir); there || err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("path %q does not exist: %w", source, err)
	}
	disk := info.Mode().Type() == os.ModeDevice
	if !info.IsDir() && !disk {
		return fmt.Errorf("only directory and block device are supported: %q is a %s", source, fileType(info.Mode()))
	}
	shared, err := m.boundElsewhere(pv.Name, pod.UID)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	group := fsGroup(pod)
	if readOnly || shared {
		group = nil
	}
	if disk {
		err = m.localDisk(ctx, dir, pod, pv, readOnly, group)
	} else {
		err = localDirectory(ctx, dir, pod, pv, info, readOnly, group)
	}
	if err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	return nil
}

// localDirectory binds a directory of the node at dir.
func localDirectory(ctx context.Context, dir string, pod *corev1.Pod, pv *corev1.PersistentVolume, info os.FileInfo, readOnly bool, group *int64) error {
	source := pv.Spec.Local.Path
	if group != nil && wantsGroup(pod, info) {
		if err := setGroup(ctx, source, *group, false); err != nil {
			return err
		}
	}
	return bindDir(source, dir, readOnly, pv.Spec.MountOptions)
}

// localDisk mounts a block device of the node at dir. One that holds nothing gets a file system.
func (m *Manager) localDisk(ctx context.Context, dir string, pod *corev1.Pod, pv *corev1.PersistentVolume, readOnly bool, group *int64) error {
	var fsType string
	if asked := pv.Spec.Local.FSType; asked != nil {
		fsType = *asked
	}
	m.formatting.Lock() // two pods may ask for the same disk
	err := mountDisk(ctx, pv.Spec.Local.Path, dir, fsType, pv.Spec.MountOptions)
	m.formatting.Unlock()
	if err != nil {
		return err
	}
	root, err := os.Stat(dir)
	if err == nil && group != nil && wantsGroup(pod, root) {
		err = setGroup(ctx, dir, *group, false)
	}
	if err == nil && readOnly {
		err = makeReadOnly(dir)
	}
	if err != nil {
		return errors.Join(err, unmountBelow(ctx, dir))
	}
	return nil
}

// wantsGroup reports whether the group of everything in a volume is to be set: always, or only if its root shows that it was not yet.
func wantsGroup(pod *corev1.Pod, root os.FileInfo) bool {
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	if policy == nil || *policy != corev1.FSGroupChangeOnRootMismatch {
		return true
	}
	return groupOf(root) != *pod.Spec.SecurityContext.FSGroup || root.Mode().Perm()&0o770 != 0o770 || root.Mode()&os.ModeSetgid == 0
}

// boundElsewhere reports whether another pod has the directory of a local volume.
func (m *Manager) boundElsewhere(pv string, except types.UID) (bool, error) {
	left, err := m.Left()
	if err != nil {
		return false, err
	}
	for _, uid := range left {
		if uid == except {
			continue
		}
		if there, err := mountedAt(m.dir(uid, "local-volume", pv)); there || err != nil {
			return there, err
		}
	}
	return false, nil
}
