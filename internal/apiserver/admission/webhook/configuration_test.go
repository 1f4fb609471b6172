package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestUpdateConfigurations: "patching/updating a validating webhook should work", and of a mutating one, and listing them: changes and deletions of
// configurations take effect.
func TestUpdateConfigurations(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/deny", deny("no"))
	c.hooks.review("/mutate", patch(`[{"op":"add","path":"/data","value":{"mutated":"yes"}}]`))
	c.validating("v", validatingHook{Name: "deny.k8s.io", ClientConfig: c.byService("/deny"), Rules: rules{rule("", "v1", "configmaps", "CREATE")},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "default"}}})
	c.mutating("m", mutatingHook{Name: "mutate.k8s.io", ClientConfig: c.byService("/mutate"), Rules: rules{rule("", "v1", "configmaps", "CREATE")}})
	n := 0
	create := func() (map[string]string, bool) {
		n++
		m, err := c.api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprint("m", n), nil), metav1.CreateOptions{})
		if err != nil && err.Error() != `admission webhook "deny.k8s.io" denied the request: no` {
			t.Fatal(err)
		}
		return m.Data, err == nil
	}
	if _, ok := create(); ok {
		t.Fatal("the webhook was not called")
	}
	hooks := c.api.AdmissionregistrationV1()
	operation := func(name string) []byte {
		return []byte(`[{"op":"replace","path":"/webhooks/0/rules/0/operations/0","value":"` + name + `"}]`)
	}
	_, err := hooks.ValidatingWebhookConfigurations().Patch(t.Context(), "v", types.JSONPatchType, operation("UPDATE"), metav1.PatchOptions{})
	c.must(err)
	c.eventually(func() bool { _, ok := create(); return ok })
	if data, _ := create(); data["mutated"] != "yes" {
		t.Errorf("the data are %v", data)
	}
	_, err = hooks.MutatingWebhookConfigurations().Patch(t.Context(), "m", types.JSONPatchType, operation("UPDATE"), metav1.PatchOptions{})
	c.must(err)
	c.eventually(func() bool { data, _ := create(); return len(data) == 0 })
	_, err = hooks.ValidatingWebhookConfigurations().Patch(t.Context(), "v", types.JSONPatchType, operation("CREATE"), metav1.PatchOptions{})
	c.must(err)
	_, err = hooks.MutatingWebhookConfigurations().Patch(t.Context(), "m", types.JSONPatchType, operation("CREATE"), metav1.PatchOptions{})
	c.must(err)
	c.eventually(func() bool { _, ok := create(); return !ok })
	c.must(hooks.ValidatingWebhookConfigurations().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	c.eventually(func() bool { _, ok := create(); return ok })
	c.eventually(func() bool { data, _ := create(); return data["mutated"] == "yes" })
	c.must(hooks.MutatingWebhookConfigurations().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	c.eventually(func() bool { data, _ := create(); return len(data) == 0 })
}

// TestMatchConditions: "should be able to create and update … webhook configurations with match conditions", "should mutate everything except 'skip-me'
// configmaps", and the variables that conditions see.
func TestMatchConditions(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/mutate", patch(`[{"op":"add","path":"/data/mutated","value":"yes"}]`))
	conditions := func(expressions ...string) (list []admissionregistrationv1.MatchCondition) {
		for i, e := range expressions {
			list = append(list, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: e})
		}
		return list
	}
	c.mutating("m", mutatingHook{Name: "mutate.k8s.io", ClientConfig: c.byService("/mutate"), Rules: rules{rule("", "v1", "configmaps", "CREATE")}, MatchConditions: conditions(
		"object.metadata.name != 'skip-me'", "object.kind == 'ConfigMap' && object.apiVersion == 'v1' && oldObject == null", "request.namespace == 'default'", "request.resource.resource == 'configmaps'",
		"request.userInfo.groups.exists(g, g == 'system:masters')", "request.options.kind == 'CreateOptions'", "authorizer.group('').resource('configmaps').namespace('default').check('create').allowed()",
		"authorizer.requestResource.check('create').allowed()", "!authorizer.serviceAccount('default', 'default').path('/healthz').check('post').allowed()")})
	mutated := func(name string) bool {
		m, err := c.api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name, map[string]string{"a": "b"}), metav1.CreateOptions{})
		c.must(err)
		return m.Data["mutated"] == "yes"
	}
	if mutated("skip-me") || !mutated("mutate-me") {
		t.Error("the match conditions were not heeded")
	}
	// An expression that fails is judged by the failurePolicy, unless another one is false.
	ignore := admissionregistrationv1.Ignore
	hook := func(policy *admissionregistrationv1.FailurePolicyType, expressions ...string) validatingHook {
		return validatingHook{Name: "fails.k8s.io", ClientConfig: c.byURL("/deny"), Rules: rules{rule("", "v1", "secrets", "CREATE")}, FailurePolicy: policy, MatchConditions: conditions(expressions...)}
	}
	c.hooks.review("/deny", deny("no"))
	c.validating("open", hook(&ignore, "object.nothing == 'a'"))
	secret := func(name string) error {
		_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	c.expect(secret("a"), "")
	c.validating("closed", hook(nil, "object.nothing == 'a'", "object.metadata.name != 'b'"))
	c.expect(secret("b"), "")
	metrics, err := c.api.CoreV1().RESTClient().Get().RequestURI("/metrics").Do(t.Context()).Raw()
	c.must(err)
	for _, line := range []string{
		`apiserver_admission_match_condition_evaluation_errors_total{kind="webhook",name="fails.k8s.io",operation="CREATE",type="validating"} 2`,
		`apiserver_admission_match_condition_exclusions_total{kind="webhook",name="mutate.k8s.io",operation="CREATE",type="admit"} `,
		`apiserver_admission_match_condition_evaluation_seconds_count{kind="webhook",name="fails.k8s.io",operation="CREATE",type="validating"} `,
	} {
		if !strings.Contains(string(metrics), "\n"+line) {
			t.Errorf("no metric %s", line)
		}
	}
	c.expect(secret("c"), `secrets "c" is forbidden: expression 'object.nothing == 'a'' resulted in error: no such key: nothing`)
}

// TestInvalidMatchConditions: "should reject … webhook configurations with invalid match conditions".
func TestInvalidMatchConditions(t *testing.T) {
	c := newCluster(t)
	h := validatingHook{Name: "h.k8s.io", ClientConfig: c.byURL("/x"), MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "bad", Expression: "... [] bad expression"}}}
	complete(&h.Name, &h.SideEffects, &h.AdmissionReviewVersions)
	_, err := c.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Webhooks: []validatingHook{h}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `webhooks[0].matchConditions[0].expression: Invalid value: "... [] bad expression": compilation failed`) {
		t.Errorf("answered with %v", err)
	}
	m := mutatingHook{Name: "h.k8s.io", ClientConfig: c.byURL("/x"), MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "text", Expression: "'a'"}}}
	complete(&m.Name, &m.SideEffects, &m.AdmissionReviewVersions)
	_, err = c.api.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Webhooks: []mutatingHook{m}}, metav1.CreateOptions{})
	c.expect(err, `MutatingWebhookConfiguration.admissionregistration.k8s.io "bad" is invalid: webhooks[0].matchConditions[0].expression: Invalid value: "'a'": must evaluate to bool but got string`)
}

// TestReviewsAreExcluded: reviews of identity and access never reach a webhook.
func TestReviewsAreExcluded(t *testing.T) {
	c := newCluster(t)
	called := make(chan string, 100)
	c.hooks.review("/all", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		called <- r.Resource.Resource + "/" + r.SubResource
		return allow(r)
	})
	c.validating("all", validatingHook{Name: "all.k8s.io", ClientConfig: c.byURL("/all"), Rules: rules{rule("authentication.k8s.io", "*", "*/*"), rule("authorization.k8s.io", "*", "*/*"), rule("", "*", "secrets")}})
	for _, path := range []string{"authentication.k8s.io/v1/selfsubjectreviews", "authorization.k8s.io/v1/selfsubjectrulesreviews"} {
		if err := c.api.CoreV1().RESTClient().Post().RequestURI("/apis/" + path).Body([]byte(`{"spec":{"namespace":"default"}}`)).Do(t.Context()).Error(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	c.must(err)
	if first := <-called; first != "secrets/" {
		t.Errorf("a webhook was called for %s", first)
	}
}
