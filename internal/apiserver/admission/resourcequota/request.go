package resourcequota

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/quota"
)

// request is a write that may have to be charged.
type request struct {
	a         *admission.Attributes
	evaluator quota.Evaluator
	quotas    []string // the names of the quotas that concern the write

	usageMeasured bool
	usageErr      error               // why the usage cannot be measured
	usage, growth corev1.ResourceList // what the object uses, and by how much an updated object uses more than before

	turn     chan bool // gets one message: true makes the request the leader, false says that it has been charged
	isLeader bool      // set when turn has been sent true
	err      error     // the outcome: nil if the write was charged
}

// charge returns what the write has to be charged to a quota, or why the quota refuses it. It changes nothing.
func (r *request) charge(q *corev1.ResourceQuota) (corev1.ResourceList, error) {
	if limits, err := r.limits(q); err != nil || !limits {
		return nil, err
	}
	return r.fit(q)
}

// limits reports whether a quota applies to the object. If it does, everything but the amounts is checked, and a violation is an error.
func (r *request) limits(q *corev1.ResourceQuota) (bool, error) {
	names := quota.Limited(r.evaluator, q.Status.Hard)
	if len(names) == 0 {
		return false, nil
	}
	if in, err := quota.InScopes(r.evaluator, &q.Spec, r.a.Object); err != nil {
		return false, fmt.Errorf("error matching scopes of quota %s, err: %v", q.Name, err)
	} else if !in {
		return false, nil
	}
	if err := r.evaluator.Constraints(names, r.a.Object); err != nil {
		return false, r.a.Forbidden(fmt.Errorf("failed quota: %s: %v", q.Name, err))
	}
	for _, name := range names {
		if _, ok := q.Status.Used[name]; !ok {
			return false, r.a.Forbidden(fmt.Errorf("status unknown for quota: %s, resources: %s", q.Name, joined(names)))
		}
	}
	return true, nil
}

// fit returns the charge, or an error if it exceeds the quota. A status update reports what has happened already, so it is charged in any case.
func (r *request) fit(q *corev1.ResourceQuota) (corev1.ResourceList, error) {
	if err := r.measure(); err != nil {
		return nil, err
	}
	more := r.usage
	if r.a.Operation == admission.Update && r.a.Old.GetResourceVersion() != "" {
		if was, err := quota.InScopes(r.evaluator, &q.Spec, r.a.Old); err != nil {
			return nil, err
		} else if was {
			more = r.growth
		}
	}
	charge := corev1.ResourceList{}
	var exceeded []corev1.ResourceName
	for name, hard := range q.Status.Hard {
		amount, ok := more[name]
		if !ok || amount.IsZero() {
			continue
		}
		charge[name] = amount
		used := q.Status.Used[name].DeepCopy()
		used.Add(amount)
		if used.Cmp(hard) > 0 && r.a.Subresource != "status" {
			exceeded = append(exceeded, name)
		}
	}
	if len(exceeded) > 0 {
		return nil, r.a.Forbidden(fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
			q.Name, amounts(charge, exceeded), amounts(q.Status.Used, exceeded), amounts(q.Status.Hard, exceeded)))
	}
	return charge, nil
}

// measure sets usage and growth on its first call, or returns why they cannot be measured.
func (r *request) measure() error {
	if !r.usageMeasured {
		r.usageMeasured, r.usageErr = true, r.measureOnce()
	}
	return r.usageErr
}

func (r *request) measureOnce() error {
	r.usage = r.evaluator.Usage(r.a.Object)
	var negative []corev1.ResourceName
	for name, value := range r.usage {
		if value.Sign() < 0 {
			negative = append(negative, name)
		}
	}
	if len(negative) > 0 {
		return r.a.Forbidden(fmt.Errorf("quota usage is negative for resource(s): %s", joined(negative)))
	}
	if r.a.Operation == admission.Create {
		return nil
	}
	if r.a.Old == nil {
		return r.a.Forbidden(errors.New("unable to get previous usage since prior version of object was not found"))
	}
	r.growth = quota.Growth(r.usage, r.evaluator.Usage(r.a.Old))
	return nil
}

// amounts formats the amounts of the named resources, sorted by name.
func amounts(list corev1.ResourceList, names []corev1.ResourceName) string {
	var parts []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		if value, ok := list[name]; ok {
			parts = append(parts, string(name)+"="+value.String())
		}
	}
	return strings.Join(parts, ",")
}

func joined(names []corev1.ResourceName) string {
	var parts []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		parts = append(parts, string(name))
	}
	return strings.Join(parts, ",")
}
