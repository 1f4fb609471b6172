package devicetainteviction

import (
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// eviction is when a pod is to be evicted, and the rules because of which it is.
type eviction struct {
	at    time.Time
	rules []*resourcev1.DeviceTaintRule // sorted by name; there may be taints of slices besides
}

// and returns an eviction for the reasons of both, at the earlier time. Either may be nil.
func (e *eviction) and(other *eviction) *eviction {
	switch {
	case e == nil:
		return other
	case other == nil:
		return e
	}
	both := &eviction{at: e.at, rules: slices.Clone(e.rules)}
	if other.at.Before(both.at) {
		both.at = other.at
	}
	for _, rule := range other.rules {
		both.add(rule)
	}
	return both
}

func (e *eviction) add(rule *resourcev1.DeviceTaintRule) {
	i, found := slices.BinarySearchFunc(e.rules, rule, func(a, b *resourcev1.DeviceTaintRule) int { return strings.Compare(a.Name, b.Name) })
	if !found {
		e.rules = slices.Insert(e.rules, i, rule)
	}
}

// evictionOfClaim returns when pods that use an allocated claim are to be evicted: when the first NoExecute taint of one of its devices is not tolerated any
// more. It is nil if all are tolerated for ever.
func evictionOfClaim(claim *resourcev1.ResourceClaim, device func(driver, pool, name string) *resourcev1.Device, rules []*resourcev1.DeviceTaintRule) *eviction {
	var e *eviction
	for i := range claim.Status.Allocation.Devices.Results {
		allocated := &claim.Status.Allocation.Devices.Results[i]
		if d := device(allocated.Driver, allocated.Pool, allocated.Device); d != nil {
			for j := range d.Taints {
				if at, ok := untolerated(allocated.Tolerations, &d.Taints[j]); ok {
					e = e.and(&eviction{at: at})
				}
			}
		}
		for _, rule := range rules {
			if !selects(rule, allocated.Driver, allocated.Pool, allocated.Device) {
				continue
			}
			if at, ok := untolerated(allocated.Tolerations, &rule.Spec.Taint); ok {
				e = e.and(&eviction{at: at, rules: []*resourcev1.DeviceTaintRule{rule}})
			}
		}
	}
	return e
}

// untolerated returns when a taint is not tolerated any more: since it was added, or for the shortest tolerationSeconds longer. ok is false if it does not evict.
func untolerated(tolerations []resourcev1.DeviceToleration, taint *resourcev1.DeviceTaint) (at time.Time, ok bool) {
	if taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return at, false
	}
	if taint.TimeAdded != nil { // the API server sets it
		at = taint.TimeAdded.Time
	}
	stay := time.Duration(-1)
	for _, t := range tolerations {
		if t.Effect != resourcev1.DeviceTaintEffectNoExecute || !resourceclaim.ToleratesTaint(t, *taint) {
			continue
		}
		if t.TolerationSeconds == nil {
			return at, false
		}
		if seconds := time.Duration(max(*t.TolerationSeconds, 0)) * time.Second; stay < 0 || seconds < stay {
			stay = seconds
		}
	}
	return at.Add(max(stay, 0)), true
}

// selects reports whether a rule taints a device.
func selects(rule *resourcev1.DeviceTaintRule, driver, pool, device string) bool {
	s := rule.Spec.DeviceSelector
	return s != nil && (s.Driver == nil || *s.Driver == driver) && (s.Pool == nil || *s.Pool == pool) && (s.Device == nil || *s.Device == device)
}
