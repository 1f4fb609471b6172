package devicetainteviction

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

// statusPeriod is the shortest time between updates of a rule's status.
const statusPeriod = 10 * time.Second

// progress is how far a rule has got.
type progress struct {
	published, allocated int // devices that it selects
	pending, namespaces  int // pods that it evicts, or would if its effect was NoExecute, and in how many namespaces they are
	evicted              int // pods that it has evicted since the loop started
}

// progress finds out how far a rule has got.
func (l *loop) progress(rule *resourcev1.DeviceTaintRule) func() progress {
	return func() (p progress) {
		l.mu.Lock()
		p.evicted = l.evicted[rule.UID]
		l.mu.Unlock()
		rules := l.allRules()
		switch rule.Spec.Taint.Effect {
		case resourcev1.DeviceTaintEffectNone:
			simulated := rule.DeepCopy()
			simulated.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
			rules = []*resourcev1.DeviceTaintRule{simulated}
			p.published = l.published(rule)
		case resourcev1.DeviceTaintEffectNoExecute:
		default:
			return p
		}
		claims, _ := l.claims.List(labels.Everything()) // a cache does not fail
		pods, namespaces := map[types.UID]bool{}, map[string]bool{}
		for _, claim := range claims {
			selected := devicesOf(claim, rule)
			p.allocated += selected
			if selected == 0 {
				continue
			}
			for _, pod := range l.consumers(claim) {
				e := l.evictionOf(pod, rules)
				if pods[pod.UID] || pod.DeletionTimestamp != nil || e == nil || !e.because(rule) {
					continue
				}
				pods[pod.UID], namespaces[pod.Namespace] = true, true
			}
		}
		p.pending, p.namespaces = len(pods), len(namespaces)
		return p
	}
}

// because reports whether a rule is a reason of an eviction.
func (e *eviction) because(rule *resourcev1.DeviceTaintRule) bool {
	for _, r := range e.rules {
		if r.UID == rule.UID {
			return true
		}
	}
	return false
}

// published returns how many devices of slices a rule selects.
func (l *loop) published(rule *resourcev1.DeviceTaintRule) (n int) {
	for _, pool := range l.sliceIndex.ListIndexFuncValues(byPool) {
		for _, slice := range l.newest(pool) {
			for _, device := range slice.Spec.Devices {
				if selects(rule, slice.Spec.Driver, slice.Spec.Pool.Name, device.Name) {
					n++
				}
			}
		}
	}
	return n
}

// devicesOf returns how many devices of a claim a rule selects.
func devicesOf(claim *resourcev1.ResourceClaim, rule *resourcev1.DeviceTaintRule) (n int) {
	if claim.Status.Allocation == nil {
		return 0
	}
	for _, d := range claim.Status.Allocation.Devices.Results {
		if selects(rule, d.Driver, d.Pool, d.Device) {
			n++
		}
	}
	return n
}

// consumers returns the pods that a claim is reserved for.
func (l *loop) consumers(claim *resourcev1.ResourceClaim) (pods []*corev1.Pod) {
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			continue
		}
		if pod, err := l.pods.Pods(claim.Namespace).Get(consumer.Name); err == nil && pod.UID == consumer.UID {
			pods = append(pods, pod)
		}
	}
	return pods
}

// decideRule brings the status of a rule up to date, if that was not done just now. is finds out how far it has got, which may be expensive.
func decideRule(rule *resourcev1.DeviceTaintRule, is func() progress, now time.Time) controller.Decision {
	has := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
	if has != nil && has.ObservedGeneration == rule.Generation {
		if wait := has.LastTransitionTime.Add(statusPeriod).Sub(now); wait > 0 {
			return controller.Decision{RequeueAfter: wait}
		}
		if rule.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
			return controller.Nothing // it says what it was when the rule was made
		}
	}
	want := conditionOf(rule, is())
	if has != nil && has.Status == want.Status && has.Reason == want.Reason && has.Message == want.Message && has.ObservedGeneration == want.ObservedGeneration {
		return controller.Nothing
	}
	want.LastTransitionTime = metav1.NewTime(now) // of any change, as that is how often it may be
	changed := rule.DeepCopy()
	if has := meta.FindStatusCondition(changed.Status.Conditions, want.Type); has != nil {
		*has = want
	} else {
		changed.Status.Conditions = append(changed.Status.Conditions, want)
	}
	return controller.Decision{Actions: []controller.Action{controller.UpdateStatus(changed)}}
}

// conditionOf returns the condition that tells how far a rule has got.
func conditionOf(rule *resourcev1.DeviceTaintRule, is progress) metav1.Condition {
	c := metav1.Condition{Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse, ObservedGeneration: rule.Generation}
	switch effect := rule.Spec.Taint.Effect; {
	case effect == resourcev1.DeviceTaintEffectNone:
		c.Reason = "NoEffect"
		c.Message = count(is.published, "published device selected. ", "published devices selected. ") + count(is.allocated, "allocated device selected. ", "allocated devices selected. ") +
			count(is.pending, "pod would be evicted in ", "pods would be evicted in ") + count(is.namespaces, "namespace ", "different namespaces ") +
			"if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
	case effect != resourcev1.DeviceTaintEffectNoExecute:
		c.Reason, c.Message = "OtherEffect", "Eviction only happens for the NoExecute effect."
	case is.pending > 0:
		c.Status, c.Reason = metav1.ConditionTrue, "PodsPendingEviction"
		c.Message = count(is.pending, "pod needs to be evicted in ", "pods need to be evicted in ") + count(is.namespaces, "namespace.", "different namespaces.")
	case is.evicted > 0:
		c.Reason = "Completed"
	default:
		c.Reason = "NotStarted"
	}
	if is.evicted > 0 {
		c.Message = strings.TrimPrefix(c.Message+" "+count(is.evicted, "pod ", "pods ")+"evicted since starting the controller.", " ")
	}
	return c
}

func count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}
