package environment

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// resource returns the value of a resourceFieldRef in a variable. A limit that the container does not set is the pod's, or else what the node
// has to give. (Upstream does not fill in the limits of an init container that another container names; neither does this.)
func (in *Input) resource(ref *corev1.ResourceFieldSelector) (string, error) {
	bound := in.Node.Allocatable
	if resourcehelper.IsPodLevelLimitsSet(in.Pod) {
		bound = bound.DeepCopy()
		for _, name := range defaultedLimits {
			limit, set := in.Pod.Spec.Resources.Limits[name]
			if _, known := bound[name]; known && set && !limit.IsZero() && resourcehelper.IsSupportedPodLevelResource(name) {
				bound[name] = limit
			}
		}
	}
	if ref.ContainerName == "" {
		return containerResource(ref, withLimits(in.Container.Resources, bound))
	}
	for i := range in.Pod.Spec.Containers {
		if c := &in.Pod.Spec.Containers[i]; c.Name == ref.ContainerName {
			return containerResource(ref, withLimits(c.Resources, bound))
		}
	}
	for i := range in.Pod.Spec.InitContainers {
		if c := &in.Pod.Spec.InitContainers[i]; c.Name == ref.ContainerName {
			return containerResource(ref, c.Resources)
		}
	}
	return "", fmt.Errorf("container %s not found", ref.ContainerName)
}

// Resource returns the value of a resourceFieldRef in a downwardAPI volume, where the container is always named and a limit that it does not set
// is what the node has to give.
func Resource(ref *corev1.ResourceFieldSelector, pod *corev1.Pod, allocatable corev1.ResourceList) (string, error) {
	for _, list := range [...][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == ref.ContainerName {
				return containerResource(ref, withLimits(list[i].Resources, allocatable))
			}
		}
	}
	return "", fmt.Errorf("container %s not found", ref.ContainerName)
}

// defaultedLimits leaves huge pages out: they are never overcommitted, so a container that uses them always sets a limit.
var defaultedLimits = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

func withLimits(r corev1.ResourceRequirements, bound corev1.ResourceList) corev1.ResourceRequirements {
	limits := r.Limits.DeepCopy()
	if limits == nil {
		limits = corev1.ResourceList{}
	}
	for _, name := range defaultedLimits {
		if limit, set := limits[name]; !set || limit.IsZero() {
			if q, known := bound[name]; known {
				limits[name] = q
			}
		}
	}
	r.Limits = limits
	return r
}

func containerResource(ref *corev1.ResourceFieldSelector, r corev1.ResourceRequirements) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	var list corev1.ResourceList
	switch kind {
	case "limits":
		list = r.Limits
	case "requests":
		list = r.Requests
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	quantity := list[corev1.ResourceName(name)]
	switch {
	case name == string(corev1.ResourceCPU):
		return ceil(quantity.MilliValue(), divisor.MilliValue()), nil
	case name == string(corev1.ResourceMemory), name == string(corev1.ResourceEphemeralStorage),
		strings.HasPrefix(name, corev1.ResourceHugePagesPrefix):
		return ceil(quantity.Value(), divisor.Value()), nil
	}
	return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
}

// ceil divides as upstream does, in floating point, which shows in quantities over 2^53.
func ceil(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}
