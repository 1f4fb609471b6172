package csi

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/kubelet/volume"
)

// mount is a volume that a pod has, or is to get.
type mount struct {
	pod         *corev1.Pod
	record      record
	driver      *driver
	target      string // where it is published
	stagingPath string // where it is staged; empty if the driver does not stage
	request     *volume.Request

	fsType        string
	attributes    map[string]string
	options       []string
	accessModes   []corev1.PersistentVolumeAccessMode
	stageSecret   *corev1.SecretReference
	publishSecret *corev1.SecretReference
	expandSecret  *corev1.SecretReference
	readOnly      bool

	// What the CSIDriver says.
	object    *storagev1.CSIDriver // nil if there is none
	attach    bool                 // a controller attaches the volume to the node
	republish bool                 // the driver wants to publish again and again

	publishContext map[string]string
	size           resource.Quantity // the size of the file system on this node; zero if it is not known
	groupByDriver  bool              // the driver gives the files to the pod's group
}

// newMount gathers what the pod, the PersistentVolume and the CSIDriver say of a volume.
func (p *Plugin) newMount(r *volume.Request) (*mount, error) {
	m := &mount{pod: r.Pod, request: r, readOnly: r.ReadOnly}
	if pv := r.PersistentVolume; pv != nil {
		source := pv.Spec.CSI
		m.record = record{Driver: source.Driver, Handle: source.VolumeHandle, Mode: string(storagev1.VolumeLifecyclePersistent)}
		m.fsType, m.attributes, m.options, m.accessModes = source.FSType, source.VolumeAttributes, pv.Spec.MountOptions, pv.Spec.AccessModes
		m.stageSecret, m.publishSecret, m.expandSecret = source.NodeStageSecretRef, source.NodePublishSecretRef, source.NodeExpandSecretRef
	} else {
		source := r.Volume.CSI
		m.record = record{Driver: source.Driver, Handle: ephemeralHandle(r.Pod.UID, r.Volume.Name), Mode: string(storagev1.VolumeLifecycleEphemeral)}
		m.attributes, m.readOnly = source.VolumeAttributes, source.ReadOnly != nil && *source.ReadOnly
		if source.FSType != nil {
			m.fsType = *source.FSType
		}
		if ref := source.NodePublishSecretRef; ref != nil {
			m.publishSecret = &corev1.SecretReference{Name: ref.Name, Namespace: r.Pod.Namespace}
		}
	}
	m.record.Name, m.record.Node = r.Name(), p.options.NodeName
	m.record.AttachmentID = attachmentID(m.record.Handle, m.record.Driver, p.options.NodeName)
	if r.Block() {
		m.record.Block = "true"
	}
	m.target = p.targetPath(r.Pod.UID, &m.record)
	var err error
	if m.object, err = p.options.Source.CSIDriver(m.record.Driver); err != nil && !apierrors.IsNotFound(err) {
		return nil, m.failed(publishing, err)
	} else if err != nil {
		m.object = nil
	}
	if err := m.checkMode(); err != nil {
		return nil, m.failed(publishing, fmt.Errorf("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: %w", err))
	}
	if o := m.object; o != nil {
		m.republish = o.Spec.RequiresRepublish != nil && *o.Spec.RequiresRepublish && !r.Block()
	}
	m.attach = !m.ephemeral() && (m.object == nil || m.object.Spec.AttachRequired == nil || *m.object.Spec.AttachRequired)
	return m, nil
}

// checkMode checks that the driver takes volumes of this mode: persistent, or in a pod's spec.
func (m *mount) checkMode() error {
	mode := storagev1.VolumeLifecycleMode(m.record.Mode)
	switch {
	case m.object == nil && !m.ephemeral():
		return nil
	case m.object == nil:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, m.record.Driver)
	case !slices.Contains(m.object.Spec.VolumeLifecycleModes, mode):
		return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, m.record.Driver, m.object.Spec.VolumeLifecycleModes)
	}
	return nil
}

func (m *mount) ephemeral() bool {
	return m.record.Mode == string(storagev1.VolumeLifecycleEphemeral)
}

// mode returns the access mode that drivers are told: the first one of several.
func (m *mount) mode() corev1.PersistentVolumeAccessMode {
	if len(m.accessModes) == 0 {
		return corev1.ReadWriteOnce
	}
	return m.accessModes[0]
}

func (m *mount) mounted() volume.Mounted {
	path := m.target
	if device, err := filepath.EvalSymlinks(path); err == nil && m.record.Block != "" { // a driver may have made a link to its device
		path = device
	}
	return volume.Mounted{Path: path, ReadOnly: m.readOnly, SetGroup: m.wantsGroup()}
}

// wantsGroup reports whether the kubelet is to give the files of the volume to the pod's group, by the fsGroupPolicy of the CSIDriver.
func (m *mount) wantsGroup() bool {
	if m.groupByDriver || m.readOnly || m.record.Block != "" {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if m.object != nil && m.object.Spec.FSGroupPolicy != nil {
		policy = cmp.Or(*m.object.Spec.FSGroupPolicy, policy)
	}
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	}
	return m.fsType != "" && (m.ephemeral() || oneNode(m.accessModes))
}

// unique returns the name that the node's status has for the volume.
func (m *mount) unique() corev1.UniqueVolumeName { return unique(m.record.Driver, m.record.Handle) }

func unique(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
}

// step is what is done to a volume, in the words that upstream has for it: one for file systems, one for block devices.
type step struct{ files, block string }

var (
	attaching  = step{"MountVolume.WaitForAttach failed", "MapVolume.WaitForAttach failed"}
	staging    = step{"MountVolume.MountDevice failed", "MapVolume.SetUpDevice failed"}
	publishing = step{"MountVolume.SetUp failed", "MapVolume.MapPodDevice failed"}
)

// failed returns the failure of a step.
func (m *mount) failed(s step, err error) error {
	if f := (*volume.Failure)(nil); errors.As(err, &f) {
		return err
	}
	f := &volume.Failure{Volume: m.record.Name, Stage: s.files, Err: err}
	if m.record.Block != "" {
		f.Stage, f.Block = s.block, true
	}
	return f
}
