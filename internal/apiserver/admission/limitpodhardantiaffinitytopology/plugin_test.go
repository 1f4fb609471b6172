package limitpodhardantiaffinitytopology_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/limitpodhardantiaffinitytopology"
)

func TestTopologies(t *testing.T) {
	for _, c := range []struct{ name, affinity, refusal string }{
		{"none", `{}`, ""},
		{"hosts", `{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}}`, ""},
		{"zones", `{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}, {topologyKey: topology.kubernetes.io/zone}]}}`,
			`pods "p" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed`},
		{"zones that are preferred", `{podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone}}]}}`, ""},
		{"affinity", `{podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {name: p}, spec: {containers: [], affinity: `+c.affinity+`}}`)
			plugin := limitpodhardantiaffinitytopology.New()
			admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(pod)), c.refusal)
			admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Update(pod, &corev1.Pod{})), c.refusal)
			admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Subresource(admissiontest.Update(pod, &corev1.Pod{}), pod, "status")), "")
		})
	}
}
