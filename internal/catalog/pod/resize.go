package pod

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// validateResize validates a change of requests and limits of a pod that may be running. Everything else was restored before.
func validateResize(new, old *corev1.Pod) field.ErrorList {
	switch {
	case isMirror(old.Annotations):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	case old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows:
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	return ratchet(&old.Spec, &old.ObjectMeta, func(allow leniency) field.ErrorList {
		root := check.At(nil)
		checkPod(root, new, allow)
		checkResize(root.Child("spec"), new, old)
		return root.Errors()
	})
}

func checkResize(p *check.Part, new, old *corev1.Pod) {
	class := old.Status.QOSClass
	if class == "" {
		class = QOSClass(old)
	}
	if QOSClass(new) != class {
		p.Invalid("", new.Status.QOSClass, "Pod QOS Class may not change as a result of resizing")
	}
	if !nodeCanResize(old) {
		p.Forbidden("", "Pod running on node without support for resize")
	}
	podLevelResize(p, new.Spec.Resources, old.Spec.Resources)
	ordered := sameOrder(p, "containers", new.Spec.Containers, old.Spec.Containers)
	if !sameOrder(p, "initContainers", new.Spec.InitContainers, old.Spec.InitContainers) || !ordered {
		return
	}
	nothingRemoved(p, "initContainers", new.Spec.InitContainers, old.Spec.InitContainers)
	nothingRemoved(p, "containers", new.Spec.Containers, old.Spec.Containers)
	for i := range old.Spec.Containers {
		if !onlyResized(&new.Spec.Containers[i], &old.Spec.Containers[i]) {
			p.Forbidden("", "only cpu and memory resources are mutable")
		}
	}
	for i := range old.Spec.InitContainers {
		initResize(p, i, &new.Spec.InitContainers[i], &old.Spec.InitContainers[i])
	}
	if len(p.Errors()) == 0 && !hasAny(new.Spec.Resources) && !hasAny(old.Spec.Resources) &&
		!apiequality.Semantic.DeepEqual(new.Spec.Resources, old.Spec.Resources) {
		p.Forbidden("", "only cpu and memory resources are mutable")
	}
}

// nodeCanResize reports whether a node reports the resources of a running container in its status, and so can change them.
func nodeCanResize(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.State.Running != nil {
			return s.Resources != nil
		}
	}
	return true
}

func hasAny(r *corev1.ResourceRequirements) bool {
	return r != nil && len(r.Requests)+len(r.Limits) > 0
}

func podLevelResize(p *check.Part, new, old *corev1.ResourceRequirements) {
	if !hasAny(new) && !hasAny(old) || new == nil {
		return
	}
	var before corev1.ResourceRequirements
	if old != nil {
		before = *old
	}
	if removed(new.Requests, before.Requests) {
		p.Child("resources").Forbidden("requests", "pod-level resource requests cannot be removed")
	}
	if removed(new.Limits, before.Limits) {
		p.Child("resources").Forbidden("limits", "pod-level resource limits cannot be removed")
	}
	if !othersKept(new, &before) {
		p.Forbidden("", "only cpu and memory resources are mutable at pod-level")
	}
}

func sameOrder(p *check.Part, list string, new, old []corev1.Container) bool {
	if len(new) != len(old) {
		p.Forbidden(list, list+" may not be added or removed on resize")
		return false
	}
	ok := true
	for i := range old {
		if new[i].Name != old[i].Name {
			p.Item(list, i).Forbidden("name", list+" may not be renamed or reordered on resize")
			ok = false
		}
	}
	return ok
}

func nothingRemoved(p *check.Part, list string, new, old []corev1.Container) {
	for i := range old {
		if removed(new[i].Resources.Requests, old[i].Resources.Requests) {
			p.Item(list, i).Child("resources").Forbidden("requests", "resource requests cannot be removed")
		}
		if removed(new[i].Resources.Limits, old[i].Resources.Limits) {
			p.Item(list, i).Child("resources").Forbidden("limits", "resource limits cannot be removed")
		}
	}
}

func removed(new, old corev1.ResourceList) bool {
	for name := range old {
		if _, kept := new[name]; !kept {
			return true
		}
	}
	return false
}

func initResize(p *check.Part, i int, new, old *corev1.Container) {
	if !onlyResized(new, old) {
		p.Add(field.Forbidden(p.Path("initContainers").Index(i), "only cpu and memory resources for init or sidecar containers are mutable"))
	}
	if isSidecar(new) || apiequality.Semantic.DeepEqual(new, old) {
		return
	}
	for _, policy := range new.ResizePolicy {
		if policy.RestartPolicy == corev1.RestartContainer {
			p.Add(field.Forbidden(p.Path("initContainers").Index(i), "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
		}
	}
}

// onlyResized reports whether nothing but amounts of cpu and memory changed.
func onlyResized(new, old *corev1.Container) bool {
	if !othersKept(&new.Resources, &old.Resources) {
		return false
	}
	c := *new
	c.Resources = old.Resources
	return apiequality.Semantic.DeepEqual(&c, old)
}

// othersKept reports whether claims and all amounts but those of cpu and memory are the same.
func othersKept(new, old *corev1.ResourceRequirements) bool {
	return amountsKept(new.Limits, old.Limits) && amountsKept(old.Limits, new.Limits) &&
		amountsKept(new.Requests, old.Requests) && amountsKept(old.Requests, new.Requests) &&
		apiequality.Semantic.DeepEqual(new.Claims, old.Claims)
}

func amountsKept(list, in corev1.ResourceList) bool {
	for name, q := range list {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			continue
		}
		if other, found := in[name]; !found || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
