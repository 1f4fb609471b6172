package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
)

// defaultPodLevelResources completes the pod-level resources from those of the containers, if the pod has any. It
// runs after admission, when all containers are known. The order matters: requests follow the limits set first, and the last
// limits must not be below the requests.
func defaultPodLevelResources(p *corev1.Pod) {
	r := p.Spec.Resources
	if r == nil || len(r.Requests) == 0 && len(r.Limits) == 0 {
		return
	}
	containersOnly := &corev1.Pod{Spec: corev1.PodSpec{Containers: p.Spec.Containers, InitContainers: p.Spec.InitContainers}}
	limits := resourcehelper.AggregateContainerLimits(containersOnly, resourcehelper.PodResourcesOptions{})
	limitHugePages(r, limits)
	requestPodLevel(r, resourcehelper.AggregateContainerRequests(containersOnly, resourcehelper.PodResourcesOptions{}))
	limitPodLevel(r, limits, &p.Spec)
}

func limitHugePages(r *corev1.ResourceRequirements, sums corev1.ResourceList) {
	for name, sum := range sums {
		if _, requested := r.Requests[name]; !requested && quantity.IsHugePage(name) {
			setMissing(&r.Limits, name, sum)
		}
	}
}

func requestPodLevel(r *corev1.ResourceRequirements, sums corev1.ResourceList) {
	for name, sum := range sums {
		if resourcehelper.IsSupportedPodLevelResource(name) && quantity.IsOvercommitAllowed(name) {
			setMissing(&r.Requests, name, sum)
		}
	}
	for name, limit := range r.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			setMissing(&r.Requests, name, limit.DeepCopy())
		}
	}
}

// limitPodLevel sets missing limits of the pod to the sum of its containers' limits, if each of them has a limit, or to the pod's request if that is larger.
func limitPodLevel(r *corev1.ResourceRequirements, sums corev1.ResourceList, spec *corev1.PodSpec) {
	for name, request := range r.Requests {
		sum, found := sums[name]
		if !found || !resourcehelper.IsSupportedPodLevelResource(name) || !allLimit(spec, name) {
			continue
		}
		if request.Cmp(sum) > 0 {
			sum = request
		}
		setMissing(&r.Limits, name, sum)
	}
}

func allLimit(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	for _, c := range containers(spec) {
		if _, limited := c.Resources.Limits[name]; !limited {
			return false
		}
	}
	return true
}

func setMissing(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if _, found := (*list)[name]; found {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q
}

// podLevelResources validates the pod-level resources, by themselves and against those of the containers.
func (r *rules) podLevelResources(p *check.Part) {
	if r.spec.Resources == nil {
		return
	}
	p = p.Child("resources")
	if r.isWindows() {
		p.Forbidden("", "may not be set for a windows pod")
		return
	}
	podLevel := r.spec.Resources
	if podLevel.Claims != nil {
		p.Forbidden("claims", "claims may not be set for Resources at pod-level")
	}
	r.resources(p, podLevel, quantity.PodLevelName)

	pod := &corev1.Pod{Spec: *r.spec}
	var buf [8]corev1.ResourceName
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range quantity.SortedNames(requests, buf[:]) {
		sum, podRequest := requests[name], podLevel.Requests[name]
		if _, set := podLevel.Requests[name]; set && sum.Cmp(podRequest) > 0 {
			p.Add(field.Invalid(p.Path("requests").Key(string(name)), podRequest.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String())))
		}
	}
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range quantity.SortedNames(limits, buf[:]) {
		sum, podLimit := limits[name], podLevel.Limits[name]
		if _, set := podLevel.Limits[name]; set && quantity.IsHugePage(name) && sum.Cmp(podLimit) > 0 {
			p.Add(field.Invalid(p.Path("limits").Key(string(name)), podLimit.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String())))
		}
	}
	for i := range r.spec.Containers {
		limits := r.spec.Containers[i].Resources.Limits
		for _, name := range quantity.SortedNames(limits, buf[:]) {
			limit, podLimit := limits[name], podLevel.Limits[name]
			if _, set := podLevel.Limits[name]; set && limit.Cmp(podLimit) > 0 {
				p.Add(field.Invalid(p.Path("containers").Index(i).Key(string(name)).Child("limits"), limit.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", podLimit.String())))
			}
		}
	}
}
