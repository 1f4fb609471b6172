package volume

import (
	"fmt"
	"path"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/environment"
)

// Mounts returns the volume mounts of a container as the runtime takes them; variables are the container's own, for subPathExpr. SetUp has to
// have made the volumes ready. For an image the mount names the image as the pod does; the caller puts the image that was pulled there.
func (m *Manager) Mounts(pod *corev1.Pod, container *corev1.Container, variables []*runtimeapi.KeyValue) ([]*runtimeapi.Mount, error) {
	mounts := make([]*runtimeapi.Mount, 0, len(container.VolumeMounts))
	for i := range container.VolumeMounts {
		mount, err := m.mount(pod, container, i, variables)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

func (m *Manager) mount(pod *corev1.Pod, container *corev1.Container, index int, variables []*runtimeapi.KeyValue) (*runtimeapi.Mount, error) {
	asked := &container.VolumeMounts[index]
	r, ok := m.ready(pod.UID, asked.Name)
	if !ok || r.device {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", asked.Name, container.Name)
	}
	subPath, err := subPathOf(asked, variables)
	if err != nil {
		return nil, err
	}
	mount := &runtimeapi.Mount{ContainerPath: asked.MountPath, Readonly: asked.ReadOnly || r.readOnly, MountOptions: asked.BindMountOptions,
		SelinuxRelabel: r.managed}
	if !path.IsAbs(mount.ContainerPath) {
		mount.ContainerPath = path.Join("/", mount.ContainerPath)
	}
	if mount.Propagation, err = propagation(asked.MountPropagation); err != nil {
		return nil, err
	}
	if mount.RecursiveReadOnly, err = m.recursiveReadOnly(pod, asked); err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	if r.image != "" {
		mount.Image = &runtimeapi.ImageSpec{Image: r.image, UserSpecifiedImage: r.image}
		mount.ImageSubPath = subPath
		return mount, nil
	}
	mount.HostPath = r.path
	if subPath != "" {
		target := filepath.Join(m.PodDir(pod.UID), "volume-subpaths", r.name, container.Name, strconv.Itoa(index))
		if err := bindSubPath(r.path, subPath, target); err != nil {
			// Users are not told more: it could be about files of the node.
			m.opts.Log.Warn("a subPath could not be mounted", "pod", pod.Namespace+"/"+pod.Name, "container", container.Name,
				"volume", asked.Name, "subPath", subPath, "err", err)
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", asked.Name, container.Name)
		}
		mount.HostPath = target
	}
	return mount, nil
}

// subPathOf returns the path in the volume that a mount asks for, empty for the whole of it.
func subPathOf(mount *corev1.VolumeMount, variables []*runtimeapi.KeyValue) (string, error) {
	subPath := mount.SubPath
	if mount.SubPathExpr != "" {
		var err error
		if subPath, err = environment.ExpandSubPath(mount.SubPathExpr, variables); err != nil {
			return "", err
		}
	}
	if path.IsAbs(subPath) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", subPath)
	}
	if err := noBacksteps(subPath); err != nil {
		return "", fmt.Errorf("unable to provision SubPath `%s`: %w", subPath, err)
	}
	return subPath, nil
}

func propagation(mode *corev1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	switch {
	case mode == nil, *mode == corev1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case *mode == corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case *mode == corev1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("invalid MountPropagation mode: %q", *mode)
}

func (m *Manager) recursiveReadOnly(pod *corev1.Pod, mount *corev1.VolumeMount) (bool, error) {
	if mount.RecursiveReadOnly == nil || *mount.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !mount.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", mount.Name)
	}
	if p := mount.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", mount.Name, *p)
	}
	supported := m.opts.RecursiveReadOnly != nil && m.opts.RecursiveReadOnly(pod)
	switch mode := *mount.RecursiveReadOnly; mode {
	case corev1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case corev1.RecursiveReadOnlyEnabled:
		if !supported {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", mount.Name)
		}
		return true, nil
	default:
		return false, fmt.Errorf("unknown recursive read-only mode %q", mode)
	}
}

// Devices returns the block devices of a container as the runtime takes them.
func (m *Manager) Devices(pod *corev1.Pod, container *corev1.Container) ([]*runtimeapi.Device, error) {
	var devices []*runtimeapi.Device
	for _, asked := range container.VolumeDevices {
		if !path.IsAbs(asked.DevicePath) {
			return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", asked.DevicePath)
		}
		r, ok := m.ready(pod.UID, asked.Name)
		if !ok || !r.device {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", asked.Name, container.Name)
		}
		permissions := "mrw"
		if r.readOnly {
			permissions = "r"
		}
		devices = append(devices, &runtimeapi.Device{HostPath: r.path, ContainerPath: asked.DevicePath, Permissions: permissions})
	}
	return devices, nil
}
