package cgroup

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	catalog "skiff/internal/catalog/pod"
)

// classes are in the order in which their cgroups are created: kubepods, which also has Guaranteed pods, comes before the cgroups in it.
var classes = [...]corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}

const podPrefix = "pod"

// class returns the pod's QoS class as the API has set it, or as its resources make it.
func class(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return catalog.QOSClass(pod)
}

func podName(uid types.UID) string { return podPrefix + string(uid) }

func (m *Manager) classPath(class corev1.PodQOSClass) string { return m.path(class) }

// path names the group of a class, or one below it, as it is in the file system: /kubepods/burstable/podUID, or in systemd's way, where each
// part repeats those above it and dashes within a part become underscores:
// /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice.
func (m *Manager) path(class corev1.PodQOSClass, below ...string) string {
	parts := append(m.rootParts(), "kubepods")
	if class == corev1.PodQOSBurstable || class == corev1.PodQOSBestEffort {
		parts = append(parts, strings.ToLower(string(class)))
	}
	parts = append(parts, below...)
	if !m.opts.Systemd {
		return "/" + path.Join(parts...)
	}
	whole, prefix := "/", ""
	for _, part := range parts {
		prefix += strings.ReplaceAll(part, "-", "_")
		whole = path.Join(whole, prefix+".slice")
		prefix += "-"
	}
	return whole
}

// rootPath returns the cgroup of the node itself.
func (m *Manager) rootPath() string {
	if m.opts.Systemd {
		return path.Dir(m.classPath(corev1.PodQOSGuaranteed))
	}
	return "/" + path.Join(m.rootParts()...)
}

func (m *Manager) rootParts() []string {
	return strings.FieldsFunc(m.opts.Root, func(r rune) bool { return r == '/' })
}

// uid takes the pod's UID out of the name of a directory in a class's group.
func (m *Manager) uid(class corev1.PodQOSClass, name string) (types.UID, bool) {
	if m.opts.Systemd {
		prefix := strings.TrimSuffix(path.Base(m.classPath(class)), ".slice") + "-"
		rest, ok := strings.CutPrefix(name, prefix)
		rest, slice := strings.CutSuffix(rest, ".slice")
		if !ok || !slice || strings.Contains(rest, "-") {
			return "", false
		}
		name = strings.ReplaceAll(rest, "_", "-")
	}
	uid, ok := strings.CutPrefix(name, podPrefix)
	return types.UID(uid), ok && uid != ""
}

func checkRoot(root string) error {
	for part := range strings.SplitSeq(root, "/") {
		if part == ".." || part == "." {
			return fmt.Errorf("%q cannot be the root of cgroups", root)
		}
	}
	return nil
}
