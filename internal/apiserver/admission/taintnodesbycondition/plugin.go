package taintnodesbycondition

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

var (
	nodes    = corev1.Resource("nodes")
	notReady = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
)

func (plugin) Name() string { return "TaintNodesByCondition" }

func (plugin) Handles(a *admission.Attributes) bool {
	return a.Is(nodes) && a.Subresource == "" && a.Operation == admission.Create
}

// Admit adds the not-ready taint.
func (plugin) Admit(_ context.Context, a *admission.Attributes) error {
	node, ok := a.Object.(*corev1.Node)
	if !ok {
		return nil
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].MatchTaint(&notReady) {
			return nil
		}
	}
	node.Spec.Taints = append(node.Spec.Taints, notReady)
	return nil
}
