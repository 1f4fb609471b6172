package node

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

// HasTaint reports whether a node has a taint of that key and effect.
func HasTaint(n *corev1.Node, key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
}

// UpdateTaints adds and removes taints of a node. The patch fails if the node has changed since it was observed: the list of taints can only be
// replaced as a whole. It returns no action if the taints are as they should be.
func UpdateTaints(n *corev1.Node, add, remove []corev1.Taint, now time.Time) []controller.Action {
	changed := false
	var taints []corev1.Taint
	for _, t := range n.Spec.Taints {
		if contains(remove, t) {
			changed = true
			continue
		}
		taints = append(taints, t)
	}
	since := metav1.NewTime(now)
	for _, t := range add {
		if !contains(n.Spec.Taints, t) {
			changed = true
			t.TimeAdded = &since
			taints = append(taints, t)
		}
	}
	if !changed {
		return nil
	}
	return []controller.Action{controller.Patch(n, "", types.StrategicMergePatchType, taintsPatch(n.ResourceVersion, taints))}
}

func contains(list []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(list, func(other corev1.Taint) bool { return t.MatchTaint(&other) })
}

func taintsPatch(version string, taints []corev1.Taint) []byte {
	type metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	}
	type spec struct {
		Taints []corev1.Taint `json:"taints"` // null removes the last one
	}
	patch, err := json.Marshal(struct {
		Metadata metadata `json:"metadata"`
		Spec     spec     `json:"spec"`
	}{metadata{version}, spec{taints}})
	if err != nil {
		panic(err) // cannot happen: strings and times can be encoded
	}
	return patch
}
