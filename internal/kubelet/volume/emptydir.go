package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// emptyDir makes a directory for a pod's containers to share. It appears with its final mode and group or not at all: containers write into
// it, so nothing about it is changed later.
func (m *Manager) emptyDir(dir string, pod *corev1.Pod, source *corev1.EmptyDirVolumeSource) error {
	switch medium := source.Medium; {
	case medium == corev1.StorageMediumDefault:
		return makeShared(dir, fsGroup(pod))
	case medium == corev1.StorageMediumMemory:
		return mountMemory(dir, m.memorySize(pod, source.SizeLimit), fsGroup(pod))
	case strings.HasPrefix(string(medium), string(corev1.StorageMediumHugePages)):
		size, err := hugePageSize(medium, pod)
		if err != nil {
			return err
		}
		return mountHugePages(dir, size, fsGroup(pod))
	default:
		return fmt.Errorf("unknown storage medium %q", medium)
	}
}

// makeShared makes a directory that everyone may write to, of the pod's group if it has one.
func makeShared(dir string, group *int64) error {
	if info, err := os.Lstat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return err
	}
	mode := os.FileMode(0o777)
	if group != nil {
		mode |= os.ModeSetgid
		err = os.Chown(fresh, -1, int(*group))
	}
	if err := errors.Join(err, os.Chmod(fresh, mode)); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	if err := os.Rename(fresh, dir); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return nil
}

// memorySize bounds a volume in memory: by its own limit, else the pod's, else by what all pods may use. 0 is the kernel's default, half of
// the machine's memory.
func (m *Manager) memorySize(pod *corev1.Pod, limit *resource.Quantity) int64 {
	allocatable := m.opts.Node().Status.Allocatable[corev1.ResourceMemory]
	size := allocatable.Value()
	smaller := func(n int64) {
		if n > 0 && (size == 0 || n <= size) {
			size = n
		}
	}
	if limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}); memoryBounded(pod) {
		smaller(limits.Memory().Value())
	}
	if limit != nil {
		smaller(limit.Value())
	}
	return size
}

// memoryBounded reports whether the pod's memory has a limit as a whole: its own, or one in each container.
func memoryBounded(pod *corev1.Pod) bool {
	if pod.Spec.Resources != nil && !pod.Spec.Resources.Limits.Memory().IsZero() {
		return true
	}
	for _, list := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Resources.Limits.Memory().IsZero() {
				return false
			}
		}
	}
	return true
}

// hugePageSize returns the size of pages of a volume on huge pages: the one that its medium names, or the only one that the pod requests. Either
// way the pod must request such pages.
func hugePageSize(medium corev1.StorageMedium, pod *corev1.Pod) (string, error) {
	want := resource.Quantity{}
	if name, ok := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePages)+"-"); ok {
		size, err := resource.ParseQuantity(name)
		if err != nil {
			return "", fmt.Errorf("medium %s: %w", medium, err)
		}
		want = size
	} else if medium != corev1.StorageMediumHugePages {
		return "", fmt.Errorf("unknown storage medium %q", medium)
	}
	lists := []corev1.ResourceList{}
	if pod.Spec.Resources != nil {
		lists = append(lists, pod.Spec.Resources.Requests)
	}
	for _, list := range [...][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			lists = append(lists, list[i].Resources.Requests)
		}
	}
	found := resource.Quantity{}
	for _, list := range lists {
		for name := range list {
			text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
			size, err := resource.ParseQuantity(text)
			switch {
			case !ok || err != nil || !want.IsZero() && size.Cmp(want) != 0:
			case !found.IsZero() && size.Cmp(found) != 0:
				return "", fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
			default:
				found = size
			}
		}
	}
	if found.IsZero() {
		return "", fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
	}
	return found.String(), nil
}
