package podtolerationrestriction

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// permits reports whether each toleration is covered by one of the whitelist. An empty whitelist permits all.
func permits(whitelist, tolerations []corev1.Toleration) bool {
	if len(whitelist) == 0 {
		return true
	}
	for i := range tolerations {
		covered := false
		for j := range whitelist {
			covered = covered || covers(&whitelist[j], &tolerations[i])
		}
		if !covered {
			return false
		}
	}
	return true
}

// merge drops tolerations that another one covers. Of equal ones the first stays.
func merge(all []corev1.Toleration) (merged []corev1.Toleration) {
	for i := range all {
		t, redundant := &all[i], false
		for j := range merged {
			redundant = redundant || covers(&merged[j], t)
		}
		for j := i + 1; j < len(all); j++ {
			redundant = redundant || !equal(t, &all[j]) && covers(&all[j], t)
		}
		if !redundant {
			merged = append(merged, *t)
		}
	}
	return merged
}

func equal(a, b *corev1.Toleration) bool { return apiequality.Semantic.DeepEqual(a, b) }

// covers reports whether a tolerates all that b tolerates.
func covers(a, b *corev1.Toleration) bool {
	switch {
	case equal(a, b):
		return true
	case a.Key != b.Key && (a.Key != "" || a.Operator != corev1.TolerationOpExists): // Exists without a key is for all keys
		return false
	case a.Effect != b.Effect && a.Effect != "":
		return false
	case a.Effect == corev1.TaintEffectNoExecute && a.TolerationSeconds != nil && (b.TolerationSeconds == nil || *b.TolerationSeconds > *a.TolerationSeconds):
		return false
	}
	switch a.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return b.Operator == corev1.TolerationOpEqual && a.Value == b.Value
	default:
		return false
	}
}
