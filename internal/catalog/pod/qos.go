package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// QOSClass returns the QoS class of a pod from its requests and limits of cpu and memory: the pod-level ones
// if it has any, else those of its containers.
func QOSClass(p *corev1.Pod) corev1.PodQOSClass {
	if resource.IsPodLevelResourcesSet(p) {
		return requirementsClass(p.Spec.Resources)
	}
	class := corev1.PodQOSClass("")
	for _, list := range [...][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			class = commonClass(class, requirementsClass(&list[i].Resources))
		}
	}
	if class == "" {
		return corev1.PodQOSBestEffort
	}
	return class
}

func requirementsClass(r *corev1.ResourceRequirements) corev1.PodQOSClass {
	return commonClass(resourceClass(r, corev1.ResourceCPU), resourceClass(r, corev1.ResourceMemory))
}

func resourceClass(r *corev1.ResourceRequirements, name corev1.ResourceName) corev1.PodQOSClass {
	request, limit := r.Requests[name], r.Limits[name]
	switch {
	case !request.Equal(limit):
		return corev1.PodQOSBurstable
	case request.IsZero():
		return corev1.PodQOSBestEffort
	default:
		return corev1.PodQOSGuaranteed
	}
}

// commonClass returns the class of two classes together: theirs if they are equal, else Burstable. An empty a is ignored.
func commonClass(a, b corev1.PodQOSClass) corev1.PodQOSClass {
	switch {
	case a == "" || a == b:
		return b
	default:
		return corev1.PodQOSBurstable
	}
}
