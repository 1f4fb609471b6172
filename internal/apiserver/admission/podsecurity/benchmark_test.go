package podsecurity_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/podsecurity"
	"skiff/internal/apiserver/objects/objectstest"
)

func benchmark(b *testing.B, labels, pod string) {
	store := objectstest.New()
	store.Put(corev1.Resource("namespaces"), admissiontest.Parse(b, &corev1.Namespace{}, `{metadata: {name: ns, labels: {kubernetes.io/metadata.name: ns, `+labels+`}}}`))
	config, err := podsecurity.ParseConfig(nil)
	if err != nil {
		b.Fatal(err)
	}
	chain := admission.NewChain(podsecurity.New(store, config, nil))
	write, stage := admissiontest.Create(admissiontest.Parse(b, &corev1.Pod{}, pod)), func(string) {}
	b.ReportAllocs()
	for b.Loop() {
		if err := chain.Validate(b.Context(), write, stage); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPrivileged admits a pod in a namespace without labels.
func BenchmarkPrivileged(b *testing.B) { benchmark(b, "", plainPod) }

// BenchmarkRestricted admits a pod that satisfies the strictest level, in a namespace that enforces it.
func BenchmarkRestricted(b *testing.B) {
	benchmark(b, "pod-security.kubernetes.io/enforce: restricted", `{metadata: {namespace: ns, name: p}, spec: {securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}},
		containers: [{name: c, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`)
}
