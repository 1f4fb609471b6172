package plugins_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/objects/objectstest"
)

var user = authn.Admin()

const podText = `{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 100m, memory: 1Mi}, limits: {cpu: 1, memory: 1Gi}}}]}}`

func cluster(b testing.TB, more ...func(*objectstest.Store)) admission.Chain {
	s := objectstest.New()
	s.Put(corev1.Resource("namespaces"), admissiontest.Parse(b, &corev1.Namespace{}, `{metadata: {name: ns}}`))
	s.Put(corev1.Resource("serviceaccounts"), admissiontest.Parse(b, &corev1.ServiceAccount{}, `{metadata: {namespace: ns, name: default}}`))
	for _, add := range more {
		add(s)
	}
	list, err := plugins.New([]string{"NodeRestriction"}, nil, s, options)
	if err != nil {
		b.Fatal(err)
	}
	return admission.NewChain(list...)
}

var podInfo = admissiontest.Info(&corev1.Pod{})

func create(b *testing.B, chain admission.Chain, pod *corev1.Pod) {
	a := &admission.Attributes{Info: podInfo, Operation: admission.Create, Namespace: "ns", Name: "p", Object: pod, User: user}
	stage := func(string) {}
	if err := chain.Admit(b.Context(), a, stage); err != nil {
		b.Fatal(err)
	}
	if err := chain.Validate(b.Context(), a, stage); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCopy measures what the other benchmarks do besides admission: they need a new pod each time.
func BenchmarkCopy(b *testing.B) {
	pod, chain := admissiontest.Parse(b, &corev1.Pod{}, podText), admission.NewChain()
	b.ReportAllocs()
	for b.Loop() {
		create(b, chain, pod.DeepCopy())
	}
}

// BenchmarkPod admits a plain pod in a namespace without limits or quotas.
func BenchmarkPod(b *testing.B) {
	chain, pod := cluster(b), admissiontest.Parse(b, &corev1.Pod{}, podText)
	b.ReportAllocs()
	for b.Loop() {
		create(b, chain, pod.DeepCopy())
	}
}

// BenchmarkPodWithNothingToDo admits a pod that has already everything that the plugins would set.
func BenchmarkPodWithNothingToDo(b *testing.B) {
	chain, pod := cluster(b), admissiontest.Parse(b, &corev1.Pod{}, podText)
	create(b, chain, pod)
	b.ReportAllocs()
	for b.Loop() {
		create(b, chain, pod)
	}
}

// BenchmarkConfigMap admits an object that only one plugin handles.
func BenchmarkConfigMap(b *testing.B) {
	chain := cluster(b)
	a := admissiontest.Create(admissiontest.Parse(b, &corev1.ConfigMap{}, `{metadata: {namespace: ns, name: m}}`))
	stage := func(string) {}
	b.ReportAllocs()
	for b.Loop() {
		if chain.Admit(b.Context(), a, stage) != nil || chain.Validate(b.Context(), a, stage) != nil {
			b.Fatal("refused")
		}
	}
}

func limited(b testing.TB) func(*objectstest.Store) {
	return func(s *objectstest.Store) {
		s.Put(corev1.Resource("limitranges"), admissiontest.Parse(b, &corev1.LimitRange{},
			`{metadata: {namespace: ns, name: l}, spec: {limits: [{type: Container, min: {cpu: 10m}, max: {cpu: 2, memory: 2Gi}, default: {cpu: 1}, defaultRequest: {cpu: 1}}]}}`))
		s.Put(corev1.Resource("resourcequotas"), admissiontest.Parse(b, &corev1.ResourceQuota{}, `{metadata: {namespace: ns, name: q},
			status: {hard: {pods: 1e15, requests.cpu: 1e12, limits.memory: 1e18}, used: {pods: 0, requests.cpu: 0, limits.memory: 0}}}`))
	}
}

// BenchmarkPodWithQuotaAndLimits admits one pod after the other in a namespace with a ResourceQuota and a LimitRange. The quota is written each time.
func BenchmarkPodWithQuotaAndLimits(b *testing.B) {
	chain, pod := cluster(b, limited(b)), admissiontest.Parse(b, &corev1.Pod{}, podText)
	b.ReportAllocs()
	for b.Loop() {
		create(b, chain, pod.DeepCopy())
	}
}

// BenchmarkPodsWithQuotaAndLimits admits many pods at a time, which share writes of the quota.
func BenchmarkPodsWithQuotaAndLimits(b *testing.B) {
	chain, pod := cluster(b, limited(b)), admissiontest.Parse(b, &corev1.Pod{}, podText)
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			create(b, chain, pod.DeepCopy())
		}
	})
}
