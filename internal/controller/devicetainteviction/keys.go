package devicetainteviction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"skiff/internal/controller"
)

// podKeys returns the key of a pod whose claims or node have changed, and the rules that select its devices.
func (l *loop) podKeys(before, after metav1.Object) (keys []controller.Key) {
	was, _ := before.(*corev1.Pod)
	pod, _ := after.(*corev1.Pod)
	latest := pod
	if pod == nil {
		latest = was
	}
	if len(latest.Spec.ResourceClaims) == 0 || was != nil && pod != nil && was.UID == pod.UID && was.Spec.NodeName == pod.Spec.NodeName &&
		(was.DeletionTimestamp == nil) == (pod.DeletionTimestamp == nil) && equality.Semantic.DeepEqual(was.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) {
		return nil
	}
	keys = append(keys, controller.KeyOf(latest))
	if rules := l.allRules(); len(rules) > 0 {
		for i := range latest.Spec.ResourceClaims {
			if name, _, err := resourceclaim.Name(latest, &latest.Spec.ResourceClaims[i]); err == nil && name != nil {
				if claim, err := l.claims.ResourceClaims(latest.Namespace).Get(*name); err == nil {
					keys = append(keys, rulesFor(rules, claim)...)
				}
			}
		}
	}
	return keys
}

// rulesFor returns the keys of those rules that select devices of a claim.
func rulesFor(rules []*resourcev1.DeviceTaintRule, claim *resourcev1.ResourceClaim) (keys []controller.Key) {
	for _, rule := range rules {
		if devicesOf(claim, rule) > 0 {
			keys = append(keys, controller.KeyOf(rule))
		}
	}
	return keys
}

// claimKeys returns the pods that a claim is or was reserved for, and the rules that select its devices.
func (l *loop) claimKeys(before, after metav1.Object) (keys []controller.Key) {
	rules := l.allRules()
	for _, obj := range []metav1.Object{before, after} {
		if claim, ok := obj.(*resourcev1.ResourceClaim); ok {
			keys = append(append(keys, l.consumerKeys(claim)...), rulesFor(rules, claim)...)
		}
	}
	return keys
}

func (l *loop) consumerKeys(claim *resourcev1.ResourceClaim) (keys []controller.Key) {
	for _, pod := range l.consumers(claim) {
		keys = append(keys, controller.KeyOf(pod))
	}
	return keys
}

// sliceKeys returns the pods that use devices of a slice's pool, if it or its newer generations may have changed their taints.
func (l *loop) sliceKeys(before, after metav1.Object) (keys []controller.Key) {
	was, _ := before.(*resourcev1.ResourceSlice)
	is, _ := after.(*resourcev1.ResourceSlice)
	if was != nil && is != nil && equality.Semantic.DeepEqual(was.Spec, is.Spec) {
		return nil
	}
	for _, slice := range []*resourcev1.ResourceSlice{was, is} {
		if slice == nil {
			continue
		}
		pool := poolOf(slice.Spec.Driver, slice.Spec.Pool.Name)
		others, _ := l.sliceIndex.ByIndex(byPool, pool) // the only error is that the index is missing
		if !evicts(slice) && !slices.ContainsFunc(others, func(obj any) bool { return evicts(obj.(*resourcev1.ResourceSlice)) }) {
			continue
		}
		claims, _ := l.claimIndex.ByIndex(byPool, pool)
		for _, obj := range claims {
			keys = append(keys, l.consumerKeys(obj.(*resourcev1.ResourceClaim))...)
		}
	}
	return keys
}

// evicts reports whether a slice has a device with a taint that evicts.
func evicts(slice *resourcev1.ResourceSlice) bool {
	return slices.ContainsFunc(slice.Spec.Devices, func(d resourcev1.Device) bool {
		return slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Effect == resourcev1.DeviceTaintEffectNoExecute })
	})
}

// ruleKeys returns the key of a rule whose spec has changed, and the pods that use devices that it selects or did before.
func (l *loop) ruleKeys(before, after metav1.Object) (keys []controller.Key) {
	was, _ := before.(*resourcev1.DeviceTaintRule)
	is, _ := after.(*resourcev1.DeviceTaintRule)
	if was != nil && is != nil && was.UID == is.UID && equality.Semantic.DeepEqual(was.Spec, is.Spec) {
		return nil
	}
	if is == nil {
		l.mu.Lock()
		delete(l.evicted, was.UID)
		l.mu.Unlock()
	} else {
		keys = append(keys, controller.KeyOf(is)) // first, so that it tells what is to come
	}
	claims, _ := l.claims.List(labels.Everything()) // a cache does not fail
	for _, rule := range []*resourcev1.DeviceTaintRule{was, is} {
		if rule == nil || rule.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
			continue
		}
		for _, claim := range claims {
			if devicesOf(claim, rule) > 0 {
				keys = append(keys, l.consumerKeys(claim)...)
			}
		}
	}
	return keys
}
