package resource

import (
	"fmt"
	"math"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog/check"
)

// checkCapacities validates a device's capacities and, if the device can be shared, their request policies.
func checkCapacities(p *check.Part, d *resourcev1.Device) {
	for _, name := range sortedKeys(d.Capacity) {
		checkQualified(p, "capacity", string(name))
		c := d.Capacity[name]
		if c.RequestPolicy == nil {
			continue
		}
		path := p.Path("capacity").Key(shortened(string(name))).Child("requestPolicy")
		if !ptr.Deref(d.AllowMultipleAllocations, false) {
			p.Add(field.Forbidden(path, "allowMultipleAllocations must be true"))
			continue
		}
		policy := check.At(path)
		checkPolicy(policy, c.Value, c.RequestPolicy)
		p.Add(policy.Errors()...)
	}
}

func checkPolicy(p *check.Part, capacity resource.Quantity, r *resourcev1.CapacityRequestPolicy) {
	switch values := len(r.ValidValues) > 0; {
	case values && r.ValidRange != nil:
		p.Forbidden("", `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)
	case values && r.Default == nil:
		p.Required("default", "required when validValues is defined")
	case values:
		checkValues(p, *r.Default, capacity, r.ValidValues)
	case r.ValidRange != nil && r.Default == nil:
		p.Required("default", "required when validRange is defined")
	case r.ValidRange != nil:
		checkRange(p.Child("validRange"), *r.Default, capacity, r.ValidRange)
	}
}

const maxPolicyValues = 10

func checkValues(p *check.Part, byDefault, capacity resource.Quantity, values []resource.Quantity) {
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			p.Item("validValues", i).Invalid("", values[i].String(), "values must be sorted in ascending order")
		}
	}
	found := false
	if !tooMany(p, "validValues", values, maxPolicyValues) {
		for i := range values {
			if values[i].Cmp(capacity) > 0 {
				p.Item("validValues", i).Invalid("", values[i].String(), fmt.Sprintf("option is larger than capacity value: %s", capacity.String()))
			}
			found = found || values[i].Cmp(byDefault) == 0
		}
		duplicates(p, "validValues", values, whole, func(q *resource.Quantity) any { return whole(q) })
	}
	if !found {
		p.Invalid("validValues", byDefault.String(), "default value is not valid according to the requestPolicy")
	}
}

// whole returns a quantity in plain digits, with any fraction rounded up.
func whole(q *resource.Quantity) string { return strconv.FormatInt(q.Value(), 10) }

// checkRange checks that a range lies within the capacity, and the default within the range, on one of its steps.
func checkRange(p *check.Part, byDefault, capacity resource.Quantity, r *resourcev1.CapacityRequestPolicyRange) {
	if r.Min == nil {
		p.Required("min", "required when validRange is defined")
		return
	}
	if r.Min.Cmp(capacity) > 0 {
		p.Invalid("min", r.Min.String(), fmt.Sprintf("min is larger than capacity value: %s", capacity.String()))
	}
	if byDefault.Cmp(*r.Min) < 0 {
		p.Invalid("default", byDefault.String(), fmt.Sprintf("default is less than min: %s", r.Min.String()))
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			p.Invalid("max", r.Min.String(), fmt.Sprintf("min is larger than max: %s", r.Max.String()))
		}
		if r.Max.Cmp(capacity) > 0 {
			p.Invalid("max", r.Max.String(), fmt.Sprintf("max is larger than capacity value: %s", capacity.String()))
		}
		if byDefault.Cmp(*r.Max) > 0 {
			p.Invalid("default", byDefault.String(), fmt.Sprintf("default is more than max: %s", r.Max.String()))
		}
	}
	checkSteps(p, byDefault, capacity, r)
}

// checkSteps checks the steps of a range, in whole numbers: fractions are rounded up.
func checkSteps(p *check.Part, byDefault, capacity resource.Quantity, r *resourcev1.CapacityRequestPolicyRange) {
	if r.Step == nil {
		return
	}
	if r.Step.Sign() <= 0 {
		p.Invalid("step", r.Step.String(), "must be greater than zero")
		return
	}
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	if first.Cmp(capacity) > 0 {
		p.Invalid("step", r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), capacity.String()))
	}
	fits := true
	for _, n := range []struct {
		name  string
		value *resource.Quantity
	}{{"default", &byDefault}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}} {
		if n.value == nil {
			continue
		}
		if msg := int64Problem(*n.value); msg != "" {
			p.Invalid(n.name, n.value.String(), msg)
			fits = false
		}
	}
	if !fits {
		return
	}
	checkOnStep(p, &byDefault, r)
	if r.Max != nil {
		checkOnStep(p, r.Max, r)
	}
}

func checkOnStep(p *check.Part, value *resource.Quantity, r *resourcev1.CapacityRequestPolicyRange) {
	if (value.Value()-r.Min.Value())%r.Step.Value() != 0 {
		p.Invalid("step", value.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String()))
	}
}

// int64Problem returns why a quantity cannot be used as an int64.
func int64Problem(q resource.Quantity) string {
	switch {
	case q.Sign() < 0:
		return validation.IsNegativeErrorMsg
	case q.CmpInt64(math.MaxInt64) > 0:
		return "must not be larger than 9223372036854775807"
	}
	return ""
}
