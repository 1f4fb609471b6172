package limitranger

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// asked is the request and limit of a container, pod or claim for one resource.
type asked struct {
	request, limit              resource.Quantity
	hasRequest, hasLimit        bool
	requestN, limitN, enforcedN int64 // at the same scale, to be compared
}

// of returns the request and limit for a's resource. Numbers are compared in thousandths unless that would overflow.
func (a amount) of(requests, limits corev1.ResourceList) asked {
	var s asked
	s.request, s.hasRequest = requests[a.name]
	s.limit, s.hasLimit = limits[a.name]
	s.requestN, s.limitN, s.enforcedN = s.request.Value(), s.limit.Value(), a.value.Value()
	if max(s.requestN, s.limitN, s.enforcedN) <= resource.MaxMilliValue {
		s.requestN, s.limitN, s.enforcedN = s.request.MilliValue(), s.limit.MilliValue(), a.value.MilliValue()
	}
	return s
}

func (a amount) checkMin(of corev1.LimitType, requests, limits corev1.ResourceList) error {
	s := a.of(requests, limits)
	switch {
	case !s.hasRequest:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", a.name, of, a.value.String())
	case s.requestN < s.enforcedN:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", a.name, of, a.value.String(), s.request.String())
	case s.hasLimit && s.limitN < s.enforcedN:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", a.name, of, a.value.String(), s.limit.String())
	}
	return nil
}

func (a amount) checkMax(of corev1.LimitType, requests, limits corev1.ResourceList) error {
	s := a.of(requests, limits)
	switch {
	case !s.hasLimit:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", a.name, of, a.value.String())
	case s.limitN > s.enforcedN:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", a.name, of, a.value.String(), s.limit.String())
	case s.hasRequest && s.requestN > s.enforcedN:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", a.name, of, a.value.String(), s.request.String())
	}
	return nil
}

// checkMaxRequest is checkMax for objects that have requests but no limits.
func (a amount) checkMaxRequest(of corev1.LimitType, requests corev1.ResourceList) error {
	s := a.of(requests, nil)
	switch {
	case !s.hasRequest:
		return fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", a.name, of, a.value.String())
	case s.requestN > s.enforcedN:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", a.name, of, a.value.String(), s.request.String())
	}
	return nil
}

func (a amount) checkRatio(of corev1.LimitType, requests, limits corev1.ResourceList) error {
	s := a.of(requests, limits)
	switch {
	case !s.hasRequest || s.requestN == 0:
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", a.name, of, a.value.String())
	case !s.hasLimit || s.limitN == 0:
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", a.name, of, a.value.String())
	}
	ratio := float64(s.limitN) / float64(s.requestN)
	scaled, most := ratio, float64(a.value.Value())
	if a.value.Value() <= resource.MaxMilliValue {
		scaled, most = ratio*1000, float64(a.value.MilliValue())
	}
	if scaled > most {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", a.name, of, a.value.String(), ratio)
	}
	return nil
}
