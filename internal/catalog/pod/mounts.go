package pod

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

const noBacksteps = "must not contain '..'"

var (
	mountPropagations = []corev1.MountPropagationMode{corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone}
	recursiveReadOnly = []corev1.RecursiveReadOnlyMode{corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible}
)

// mounts validates the volume mounts of a container. Some errors name the list and not the mount, as upstream's do.
func (r *rules) mounts(p *check.Part, c *corev1.Container) {
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], p.Item("volumeMounts", i)
		at.Present("name", m.Name != "", "")
		if _, found := r.volumes[m.Name]; !found {
			at.Add(field.NotFound(at.Path("name"), m.Name))
		}
		at.Present("mountPath", m.MountPath != "", "")
		if mountAt(c.VolumeMounts[:i], m.MountPath) {
			at.Invalid("mountPath", m.MountPath, "must be unique")
		}
		if deviceNamed(c.VolumeDevices, m.Name) {
			at.Invalid("name", m.Name, "must not already exist in volumeDevices")
		}
		if takenByDevice(c.VolumeDevices, m.MountPath) {
			at.Invalid("mountPath", m.MountPath, "must not already exist as a path in volumeDevices")
		}
		if m.SubPath != "" || m.SubPathExpr != "" {
			subPaths(p.Child("volumeMounts"), at, m)
		}
		if m.MountPropagation != nil {
			propagation(p.Child("volumeMounts"), *m.MountPropagation, c)
		}
		if m.RecursiveReadOnly != nil {
			recursive(p.Child("volumeMounts"), m)
		}
	}
}

func subPaths(list, p *check.Part, m *corev1.VolumeMount) {
	if m.SubPath != "" {
		descending(list, "subPath", m.SubPath)
	}
	if m.SubPathExpr != "" {
		if m.SubPath != "" {
			p.Invalid("subPathExpr", m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
		}
		descending(list, "subPathExpr", m.SubPathExpr)
	}
}

// descending validates a relative path without "..".
func descending(p *check.Part, name, value string) {
	if path.IsAbs(value) {
		p.Invalid(name, value, "must be a relative path")
	}
	if hasBacksteps(value) {
		p.Invalid(name, value, noBacksteps)
	}
}

func hasBacksteps(p string) bool {
	for item := range strings.SplitSeq(p, "/") {
		if item == ".." {
			return true
		}
	}
	return false
}

func propagation(p *check.Part, mode corev1.MountPropagationMode, c *corev1.Container) {
	check.OneOf(p, "mountPropagation", mode, mountPropagations...)
	if mode == corev1.MountPropagationBidirectional && (c.SecurityContext == nil || !is(c.SecurityContext.Privileged)) {
		p.Forbidden("mountPropagation", "Bidirectional mount propagation is available only to privileged containers")
	}
}

func recursive(p *check.Part, m *corev1.VolumeMount) {
	check.OneOf(p, "recursiveReadOnly", *m.RecursiveReadOnly, recursiveReadOnly...)
	if *m.RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyIfPossible {
		return
	}
	if !m.ReadOnly {
		p.Forbidden("recursiveReadOnly", "may only be specified when readOnly is true")
	}
	if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
		p.Forbidden("recursiveReadOnly", "may only be specified when mountPropagation is None or not specified")
	}
}

// devices validates the volume devices of a container.
func (r *rules) devices(p *check.Part, c *corev1.Container) {
	for i := range c.VolumeDevices {
		d, at := &c.VolumeDevices[i], p.Item("volumeDevices", i)
		source, found := r.volumes[d.Name]
		at.Present("name", d.Name != "", "")
		if d.Name != "" && deviceNamed(c.VolumeDevices[:i], d.Name) {
			at.Invalid("name", d.Name, "must be unique")
		}
		if found && source.PersistentVolumeClaim == nil && source.Ephemeral == nil {
			at.Invalid("name", d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		if !found {
			at.Add(field.NotFound(at.Path("name"), d.Name))
		}
		at.Present("devicePath", d.DevicePath != "", "")
		if !hasBacksteps(d.DevicePath) && deviceAt(c.VolumeDevices[:i], d.DevicePath) {
			at.Invalid("devicePath", d.DevicePath, "must be unique")
		}
		if hasBacksteps(d.DevicePath) {
			at.Invalid("devicePath", d.DevicePath, "can not contain backsteps ('..')")
		}
		if mountNamed(c.VolumeMounts, d.Name) {
			at.Invalid("name", d.Name, "must not already exist in volumeMounts")
		}
		if takenByMount(c.VolumeMounts, d.DevicePath) {
			at.Invalid("devicePath", d.DevicePath, "must not already exist as a path in volumeMounts")
		}
	}
}

func mountNamed(list []corev1.VolumeMount, name string) bool {
	return slices.ContainsFunc(list, func(m corev1.VolumeMount) bool { return m.Name == name })
}

func mountAt(list []corev1.VolumeMount, path string) bool {
	return slices.ContainsFunc(list, func(m corev1.VolumeMount) bool { return m.MountPath == path })
}

func deviceNamed(list []corev1.VolumeDevice, name string) bool {
	return slices.ContainsFunc(list, func(d corev1.VolumeDevice) bool { return d.Name == name })
}

func deviceAt(list []corev1.VolumeDevice, path string) bool {
	return slices.ContainsFunc(list, func(d corev1.VolumeDevice) bool { return d.DevicePath == path })
}

// takenByMount reports whether a volume is mounted at a path. Only the last of several mounts of one volume counts.
func takenByMount(list []corev1.VolumeMount, path string) bool {
	for i := range list {
		if list[i].MountPath == path && !mountNamed(list[i+1:], list[i].Name) {
			return true
		}
	}
	return false
}

// takenByDevice reports whether a device is at a path. Only the last of several devices of one volume counts.
func takenByDevice(list []corev1.VolumeDevice, path string) bool {
	for i := range list {
		if list[i].DevicePath == path && !deviceNamed(list[i+1:], list[i].Name) {
			return true
		}
	}
	return false
}
