package validating_test

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/policy"
	"skiff/internal/apiserver/admission/policy/validating"
	"skiff/internal/apiserver/objects/objectstest"
)

func benchmark(b *testing.B, fill func(*objectstest.Store)) {
	store := newStore(b)
	chain := admission.NewChain(validating.New(store, policy.Options{}))
	fill(store)
	pod := admissiontest.Parse(b, &corev1.Pod{}, `{metadata: {namespace: ns, name: p, labels: {app: web}},
		spec: {containers: [{name: c, image: registry.example.com/i, resources: {limits: {cpu: "1", memory: 1Gi}}}, {name: d, image: registry.example.com/j}]}}`)
	write, stage := admissiontest.Create(pod), func(string) {}
	b.ReportAllocs()
	for b.Loop() {
		if err := chain.Validate(b.Context(), write, stage); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNoPolicies is a write when there are no policies.
func BenchmarkNoPolicies(b *testing.B) { benchmark(b, func(*objectstest.Store) {}) }

// BenchmarkOtherPolicies is a write of a resource that the policies are not about.
func BenchmarkOtherPolicies(b *testing.B) {
	benchmark(b, func(s *objectstest.Store) {
		put(b, s, `
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}
  validations: [{expression: 'false'}]`, "validationActions: [Deny]")
	})
}

// Benchmark20Validations is a pod that a policy with 20 rules allows.
func Benchmark20Validations(b *testing.B) {
	var rules []string
	for i := range 20 {
		rules = append(rules, []string{
			`{expression: "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))", message: registry}`,
			`{expression: "has(object.metadata.labels) && object.metadata.labels.app != 'x` + fmt.Sprint(i) + `'"}`,
			`{expression: "!has(object.spec.hostNetwork) || !object.spec.hostNetwork", messageExpression: "'no host network for ' + object.metadata.name"}`,
			`{expression: "variables.images.size() < 10 && request.operation == 'CREATE'"}`,
			`{expression: "namespaceObject.metadata.labels.env == 'prod'"}`}[i%5])
	}
	benchmark(b, func(s *objectstest.Store) {
		put(b, s, onAll+"  variables: [{name: images, expression: \"object.spec.containers.map(c, c.image)\"}]\n  validations: ["+strings.Join(rules, ", ")+"]", "validationActions: [Deny]")
	})
}

// Benchmark1000Bindings is a pod in a namespace for which a policy has 1,000 bindings: all with the same parameter, each with one of its own, or with
// selectors of which one matches.
func Benchmark1000Bindings(b *testing.B) {
	for name, binding := range map[string]func(i int) string{
		"Same": func(int) string { return "paramRef: {name: limit, parameterNotFoundAction: Deny}" },
		"Own":  func(i int) string { return fmt.Sprintf("paramRef: {name: limit-%d, parameterNotFoundAction: Deny}", i) },
		"Selectors": func(i int) string {
			return fmt.Sprintf("matchResources: {namespaceSelector: {matchLabels: {env: e%d}}}", i)
		},
	} {
		b.Run(name, func(b *testing.B) {
			benchmark(b, func(s *objectstest.Store) {
				put(b, s, onAll+`  paramKind: {apiVersion: v1, kind: ConfigMap}
  validations: [{expression: "params == null || object.spec.containers.size() < 3 + int(params.data.max)", message: too many}]`, "validationActions: [Deny]")
				for i := range 1000 {
					s.Put(corev1.Resource("configmaps"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("limit-%d", i)}, Data: map[string]string{"max": "1"}})
					one := admissiontest.Parse(b, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
						fmt.Sprintf("metadata: {name: b%d}\nspec: {policyName: p, validationActions: [Deny], %s}", i, binding(i)))
					admissiontest.Info(one).Default(one)
					s.Put(bindings, one)
				}
			})
		})
	}
}
