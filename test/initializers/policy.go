package initializers

import (
	"context"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Policies needs no server of one's own: two MutatingAdmissionPolicies and a ValidatingAdmissionPolicy.
type Policies struct{}

// Start implements Way.
func (Policies) Start(t *testing.T, c *Cluster, within string) {
	t.Helper()
	command := "["
	for i, word := range c.Command {
		if i > 0 {
			command += ", "
		}
		command += fmt.Sprintf("%q", word)
	}
	command += "]"
	fail := ptr.To(admissionregistrationv1.Fail)
	namespaces := &metav1.LabelSelector{MatchLabels: map[string]string{Within: within}}
	certified := namespaces.DeepCopy()
	certified.MatchLabels[certifiedLabel] = "yes"
	on := func(resource string, namespaces *metav1.LabelSelector) *admissionregistrationv1.MatchResources {
		return &admissionregistrationv1.MatchResources{NamespaceSelector: namespaces, ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}}}}}}
	}
	apply := func(expression string) []admissionregistrationv1.Mutation {
		return []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression}}}
	}
	c.mutate(t, within+"-certificates", admissionregistrationv1.MutatingAdmissionPolicySpec{FailurePolicy: fail, MatchConstraints: on("pods", certified), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: apply(`Object{spec: Object.spec{
			volumes: [Object.spec.volumes{name: "` + certificates + `", configMap: Object.spec.volumes.configMap{name: "` + certificates + `"}}],
			containers: object.spec.containers.map(c, Object.spec.containers{name: c.name,
				volumeMounts: [Object.spec.containers.volumeMounts{name: "` + certificates + `", mountPath: "` + CertificatesPath + `"}]})}}`)})
	c.mutate(t, within+"-proxy", admissionregistrationv1.MutatingAdmissionPolicySpec{FailurePolicy: fail, MatchConstraints: on("pods", namespaces), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "wants-proxy", Expression: `object.spec.containers.exists(c, has(c.ports) && c.ports.exists(p, p.containerPort == 80)) ||
			has(object.metadata.annotations) && "` + proxyAnnotation + `" in object.metadata.annotations`}},
		Mutations: []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{ // as the command is atomic
			Expression: `[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "` + proxyName + `", image: "` + c.Image +
				`", imagePullPolicy: "IfNotPresent", command: ` + command + `}}]`}}}})
	api := c.api(t).AdmissionregistrationV1()
	name := within + "-secret"
	_, err := api.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{FailurePolicy: fail, MatchConstraints: on("secrets", namespaces), Validations: []admissionregistrationv1.Validation{{
			Expression: fmt.Sprintf("!has(object.data) || object.data.all(k, size(object.data[k]) >= %d)", shortest), Message: refusal}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = api.ValidatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	_, err = api.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// mutate creates a policy and its binding, which are deleted when the test ends.
func (c *Cluster) mutate(t *testing.T, name string, spec admissionregistrationv1.MutatingAdmissionPolicySpec) {
	t.Helper()
	api := c.api(t).AdmissionregistrationV1()
	if _, err := api.MutatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.MutatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	_, err := api.MutatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = api.MutatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}
