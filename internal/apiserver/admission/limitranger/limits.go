package limitranger

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"skiff/internal/catalog/quantity"
)

// limitRange is a LimitRange with its resource names sorted, so that refusals list them in the same order every time.
type limitRange struct {
	requests, limits       []amount // the defaults of containers
	containers, pods, pvcs []bounds
}

// bounds are the constraints of one item of a LimitRange.
type bounds struct{ min, max, ratio []amount }

type amount struct {
	name  corev1.ResourceName
	value resource.Quantity
}

func prepare(l *corev1.LimitRange) *limitRange {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	var r limitRange
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		b := bounds{min: amounts(item.Min), max: amounts(item.Max), ratio: amounts(item.MaxLimitRequestRatio)}
		switch item.Type {
		case corev1.LimitTypeContainer:
			r.containers = append(r.containers, b)
			for name, value := range item.DefaultRequest {
				requests[name] = value
			}
			for name, value := range item.Default {
				limits[name] = value
			}
		case corev1.LimitTypePod:
			r.pods = append(r.pods, b)
		case corev1.LimitTypePersistentVolumeClaim:
			r.pvcs = append(r.pvcs, b)
		}
	}
	r.requests, r.limits = amounts(requests), amounts(limits)
	return &r
}

func amounts(list corev1.ResourceList) []amount {
	var sorted []amount
	for _, name := range quantity.SortedNames(list, nil) {
		value := list[name]
		sorted = append(sorted, amount{name, value.DeepCopy()})
	}
	return sorted
}

// checkPod returns the violations of a pod.
func (r *limitRange) checkPod(pod *corev1.Pod) []error {
	var errs []error
	for i := range r.containers {
		for j := range pod.Spec.Containers {
			c := &pod.Spec.Containers[j].Resources
			errs = r.containers[i].check(errs, corev1.LimitTypeContainer, c.Requests, c.Limits)
		}
		for j := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[j].Resources
			errs = r.containers[i].check(errs, corev1.LimitTypeContainer, c.Requests, c.Limits)
		}
	}
	if len(r.pods) == 0 {
		return errs
	}
	requests, limits := podTotals(pod)
	for i := range r.pods {
		errs = r.pods[i].check(errs, corev1.LimitTypePod, requests, limits)
	}
	return errs
}

// podTotals returns the sums of the containers' requests and limits, with the pod-level values, where set, in their place.
func podTotals(pod *corev1.Pod) (requests, limits corev1.ResourceList) {
	requests = podresource.AggregateContainerRequests(pod, podresource.PodResourcesOptions{})
	limits = podresource.AggregateContainerLimits(pod, podresource.PodResourcesOptions{})
	if whole := pod.Spec.Resources; whole != nil {
		for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if value, ok := whole.Requests[name]; ok {
				requests[name] = value
			}
			if value, ok := whole.Limits[name]; ok {
				limits[name] = value
			}
		}
	}
	return requests, limits
}

// checkClaim returns the violations of a claim, which has requests only.
func (r *limitRange) checkClaim(claim *corev1.PersistentVolumeClaim) []error {
	var errs []error
	for i := range r.pvcs {
		b := &r.pvcs[i]
		for _, min := range b.min {
			errs = appendError(errs, min.checkMin(corev1.LimitTypePersistentVolumeClaim, claim.Spec.Resources.Requests, nil))
		}
		for _, max := range b.max {
			errs = appendError(errs, max.checkMaxRequest(corev1.LimitTypePersistentVolumeClaim, claim.Spec.Resources.Requests))
		}
	}
	return errs
}

func (b *bounds) check(errs []error, of corev1.LimitType, requests, limits corev1.ResourceList) []error {
	for _, min := range b.min {
		errs = appendError(errs, min.checkMin(of, requests, limits))
	}
	for _, max := range b.max {
		errs = appendError(errs, max.checkMax(of, requests, limits))
	}
	for _, ratio := range b.ratio {
		errs = appendError(errs, ratio.checkRatio(of, requests, limits))
	}
	return errs
}

func appendError(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
}
