package pod

import (
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/nodeselector"
)

func (r *rules) nodeAffinity(p *check.Part, a *corev1.NodeAffinity) {
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		p.Add(nodeselector.Validate(required, r.allow.nodeAffinityLabels, p.Path("requiredDuringSchedulingIgnoredDuringExecution"))...)
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		term, at := &a.PreferredDuringSchedulingIgnoredDuringExecution[i], p.Item("preferredDuringSchedulingIgnoredDuringExecution", i)
		weight(at, term.Weight)
		at.Add(nodeselector.ValidateTerm(&term.Preference, true, at.Path("preference"))...)
	}
}
