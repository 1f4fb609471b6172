package runtimeclass

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// merge leaves out tolerations that another one covers. Of equal ones the first stays.
func merge(all []corev1.Toleration) []corev1.Toleration {
	var merged []corev1.Toleration
	for i := range all {
		if !redundant(&all[i], merged, all[i+1:]) {
			merged = append(merged, all[i])
		}
	}
	return merged
}

func redundant(t *corev1.Toleration, kept, following []corev1.Toleration) bool {
	for i := range kept {
		if includes(&kept[i], t) {
			return true
		}
	}
	for i := range following {
		if !equality.Semantic.DeepEqual(t, &following[i]) && includes(&following[i], t) {
			return true
		}
	}
	return false
}

// includes reports whether wide tolerates all that t does.
func includes(wide, t *corev1.Toleration) bool {
	switch {
	case equality.Semantic.DeepEqual(wide, t):
		return true
	case wide.Key != t.Key && (wide.Key != "" || wide.Operator != corev1.TolerationOpExists):
		return false
	case wide.Effect != t.Effect && wide.Effect != "":
		return false
	case wide.Effect == corev1.TaintEffectNoExecute && wide.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *wide.TolerationSeconds):
		return false
	}
	switch wide.Operator {
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && t.Value == wide.Value
	default:
		return wide.Operator == corev1.TolerationOpExists
	}
}
