package limitpodhardantiaffinitytopology

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

var pods = corev1.Resource("pods")

func (plugin) Name() string { return "LimitPodHardAntiAffinityTopology" }

func (plugin) Handles(a *admission.Attributes) bool {
	return a.Is(pods) && a.Subresource == "" && (a.Operation == admission.Create || a.Operation == admission.Update)
}

// Validate refuses a pod that requires not to be in the same zone, or in another domain larger than a node, as other pods.
func (plugin) Validate(_ context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	terms := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for i := range terms {
		if key := terms[i].TopologyKey; key != corev1.LabelHostname {
			return apierrors.NewForbidden(pods, pod.Name, fmt.Errorf("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", key, corev1.LabelHostname))
		}
	}
	return nil
}
