package extendedresourcetoleration

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/catalog/quantity"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

var pods = corev1.Resource("pods")

func (plugin) Name() string { return "ExtendedResourceToleration" }

func (plugin) Handles(a *admission.Attributes) bool {
	return a.Is(pods) && a.Subresource == "" && (a.Operation == admission.Create || a.Operation == admission.Update)
}

// Admit adds a toleration for each extended resource that a container of the pod requests.
func (plugin) Admit(_ context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	var names []string
	for _, containers := range [...][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if quantity.IsExtended(name) {
					names = append(names, string(name))
				}
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		tolerate(pod, corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return nil
}

// tolerate adds a toleration to the pod, or puts it in the place of those that differ from it only in their time.
func tolerate(pod *corev1.Pod, t corev1.Toleration) {
	known := false
	tolerations := slices.Clone(pod.Spec.Tolerations)
	for i := range tolerations {
		if tolerations[i].MatchToleration(&t) {
			tolerations[i], known = t, true
		}
	}
	if !known {
		tolerations = append(tolerations, t)
	}
	pod.Spec.Tolerations = tolerations
}
