package podgroupprotection

import (
	"context"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"skiff/internal/apiserver/admission"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

const finalizer = "scheduling.k8s.io/podgroup-protection"

var podGroups = schedulingv1beta1.Resource("podgroups")

func (plugin) Name() string { return "PodGroupProtection" }

func (plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Subresource == "" && a.Is(podGroups)
}

// Admit adds the finalizer.
func (plugin) Admit(_ context.Context, a *admission.Attributes) error {
	group, ok := a.Object.(*schedulingv1beta1.PodGroup)
	if ok && !slices.Contains(group.Finalizers, finalizer) {
		group.Finalizers = append(group.Finalizers, finalizer)
	}
	return nil
}
