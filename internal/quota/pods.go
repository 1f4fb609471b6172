package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	podresource "k8s.io/component-helpers/resource"

	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/quantity"
)

var pods = corev1.Resource("pods")

const podCount corev1.ResourceName = "count/pods"

var podNames = map[corev1.ResourceName]bool{
	podCount: true, corev1.ResourcePods: true,
	corev1.ResourceCPU: true, corev1.ResourceRequestsCPU: true, corev1.ResourceLimitsCPU: true,
	corev1.ResourceMemory: true, corev1.ResourceRequestsMemory: true, corev1.ResourceLimitsMemory: true,
	corev1.ResourceEphemeralStorage: true, corev1.ResourceRequestsEphemeralStorage: true, corev1.ResourceLimitsEphemeralStorage: true,
}

// required are the names that every container must specify once a quota limits them.
var required = map[corev1.ResourceName]bool{
	corev1.ResourceCPU: true, corev1.ResourceRequestsCPU: true, corev1.ResourceLimitsCPU: true,
	corev1.ResourceMemory: true, corev1.ResourceRequestsMemory: true, corev1.ResourceLimitsMemory: true,
}

type podEvaluator struct{ now func() time.Time }

func (podEvaluator) Counts(name corev1.ResourceName) bool {
	return podNames[name] || quantity.IsQuotaHugePage(name) || isExtended(name)
}

// isExtended reports whether the name limits an extended resource or one that a device class offers.
func isExtended(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		(!quantity.IsNative(name) || strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass))
}

// Usage returns the requests and limits of a pod; a pod that has terminated counts only as an object.
func (e podEvaluator) Usage(obj Object) corev1.ResourceList {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	if !e.active(p) {
		return corev1.ResourceList{podCount: one()}
	}
	// New pods have no status to take resources from.
	options := podresource.PodResourcesOptions{UseStatusResources: len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses)+len(p.Status.Conditions) > 0}
	used := computed(podresource.PodRequests(p, options), podresource.PodLimits(p, options))
	used[podCount], used[corev1.ResourcePods] = one(), one()
	return used
}

// active reports whether a pod still has its resources: it has not terminated, and its grace period after a deletion has not passed.
func (e podEvaluator) active(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return true
	}
	grace := time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
	return !e.now().After(p.DeletionTimestamp.Add(grace))
}

// computed returns requests and limits under the names that quotas use.
func computed(requests, limits corev1.ResourceList) corev1.ResourceList {
	used := make(corev1.ResourceList, 2+2*len(requests)+len(limits))
	for name, value := range requests {
		switch {
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || quantity.IsHugePage(name):
			used[name] = value
			used[corev1.DefaultResourceRequestsPrefix+name] = value
		case quantity.IsExtended(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix):
			used[corev1.DefaultResourceRequestsPrefix+name] = value
		}
	}
	for name, value := range limits {
		switch name {
		case corev1.ResourceCPU:
			used[corev1.ResourceLimitsCPU] = value
		case corev1.ResourceMemory:
			used[corev1.ResourceLimitsMemory] = value
		case corev1.ResourceEphemeralStorage:
			used[corev1.ResourceLimitsEphemeralStorage] = value
		}
	}
	return used
}

// Constraints requires that every container specifies the limited amounts of cpu and memory, unless the pod has pod-level resources.
func (podEvaluator) Constraints(limited []corev1.ResourceName, obj Object) error {
	p, ok := obj.(*corev1.Pod)
	if !ok || podresource.IsPodLevelResourcesSet(p) {
		return nil
	}
	var missing map[string][]string // containers by the name they lack
	for _, list := range [...][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			for _, name := range limited {
				if required[name] && !specifies(&list[i].Resources, name) {
					if missing == nil {
						missing = map[string][]string{}
					}
					missing[string(name)] = append(missing[string(name)], list[i].Name)
				}
			}
		}
	}
	if missing == nil {
		return nil
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		parts = append(parts, name+" for: "+strings.Join(slices.Compact(missing[name]), ","))
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

func specifies(r *corev1.ResourceRequirements, name corev1.ResourceName) bool {
	list, plain := r.Requests, strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	if of, limit := strings.CutPrefix(string(name), "limits."); limit {
		list, plain = r.Limits, of
	}
	_, ok := list[corev1.ResourceName(plain)]
	return ok
}

func (podEvaluator) Charges(w Write) bool {
	switch w.Subresource {
	case "":
		return w.Create || isTerminating(w.Object) != isTerminating(w.Old)
	case "resize":
		return !w.Create
	default:
		return false
	}
}

// Frees reports whether a pod terminated, was resized by its node, or got or lost an activeDeadlineSeconds.
func (e podEvaluator) Frees(new, old Object) bool {
	n, ok := new.(*corev1.Pod)
	o, also := old.(*corev1.Pod)
	if !ok || !also {
		return false
	}
	return isTerminating(n) != isTerminating(o) || e.active(o) && !e.active(n) ||
		resized(n.Status.ContainerStatuses, o.Status.ContainerStatuses) || resized(n.Status.InitContainerStatuses, o.Status.InitContainerStatuses)
}

func resized(new, old []corev1.ContainerStatus) bool {
	for i := range old {
		at := slices.IndexFunc(new, func(s corev1.ContainerStatus) bool { return s.Name == old[i].Name })
		if at >= 0 && !equality.Semantic.DeepEqual(old[i].Resources, new[at].Resources) {
			return true
		}
	}
	return false
}

func (podEvaluator) InScope(s corev1.ScopedResourceSelectorRequirement, obj Object) (bool, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return false, nil
	}
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return isTerminating(p), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !isTerminating(p), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(p), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(p), nil
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(p.Spec.Affinity), nil
	case corev1.ResourceQuotaScopePriorityClass:
		switch class := p.Spec.PriorityClassName; {
		case s.Operator == corev1.ScopeSelectorOpExists:
			return class != "", nil
		case class == "":
			return selects(s)
		default:
			return selects(s, class)
		}
	default:
		return false, nil
	}
}

// isTerminating reports whether a pod is in the scope Terminating: it has activeDeadlineSeconds.
func isTerminating(obj Object) bool {
	p, ok := obj.(*corev1.Pod)
	return ok && p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds >= 0
}

func isBestEffort(p *corev1.Pod) bool {
	class := p.Status.QOSClass
	if class == "" {
		class = pod.QOSClass(p)
	}
	return class == corev1.PodQOSBestEffort
}

// crossesNamespaces reports whether a pod has affinity or anti-affinity terms for pods of other namespaces.
func crossesNamespaces(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	crosses := func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }
	weighted := func(t corev1.WeightedPodAffinityTerm) bool { return crosses(t.PodAffinityTerm) }
	if with := a.PodAffinity; with != nil && (slices.ContainsFunc(with.RequiredDuringSchedulingIgnoredDuringExecution, crosses) ||
		slices.ContainsFunc(with.PreferredDuringSchedulingIgnoredDuringExecution, weighted)) {
		return true
	}
	not := a.PodAntiAffinity
	return not != nil && (slices.ContainsFunc(not.RequiredDuringSchedulingIgnoredDuringExecution, crosses) ||
		slices.ContainsFunc(not.PreferredDuringSchedulingIgnoredDuringExecution, weighted))
}
