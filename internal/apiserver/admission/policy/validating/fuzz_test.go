package validating_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/policy"
	"skiff/internal/apiserver/admission/policy/validating"
)

// FuzzExpression: no expression and no object makes the plugin panic, or evaluate for longer than the cost limit allows.
func FuzzExpression(f *testing.F) {
	for _, expression := range []string{"true", "object.data.k == 'v'", "object.metadata.labels.all(k, k.startsWith('a'))", "variables.v + 1 > params.data.size()", "object", "oldObject.x.y[0]",
		"[1, 2, 3].map(x, [x].map(y, y * x)).size() > 0", "request.userInfo.extra", "authorizer.group('').resource('pods').check('get').allowed()", "dyn(variables).v", "quantity('1Gi').isGreaterThan(quantity('1'))",
		"object.spec.containers.exists(c, c.name.matches('^a+$'))", "'%s'.format([object])", "namespaceObject.metadata.creationTimestamp > timestamp('2020-01-01T00:00:00Z')", "object.status == null || has(object.status.x)",
		"params.data.map(k, v, k + v)", "object == oldObject", "url('https://x').getHost() == ip('::1').string()", "{'a': object}.a.kind == 'Pod'", "9223372036854775807 + 1 > 0", "1 / 0 == 1", "type(object) == map"} {
		f.Add(expression, `{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}}`)
	}
	f.Add("object.metadata.annotations", `{"metadata":{"annotations":{"\u0000":"x"},"deletionTimestamp":"2020-01-01T00:00:00Z","managedFields":[{"fieldsV1":{}}]}}`)
	f.Fuzz(func(t *testing.T, expression, object string) {
		pod := &corev1.Pod{}
		if len(expression) > 4096 || len(object) > 4096 || json.Unmarshal([]byte(object), pod) != nil {
			return
		}
		pod.Namespace = "ns"
		store := newStore(t)
		plugin := validating.New(store, policy.Options{Authorizer: admissiontest.Allow{}})
		put(t, store, onAll+"  validations: [{expression: 'true'}]", "validationActions: [Deny], paramRef: {name: limit, parameterNotFoundAction: Deny}")
		p := store.Get(policies, "", "p").DeepCopyObject().(*admissionregistrationv1.ValidatingAdmissionPolicy)
		p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v", Expression: expression}, {Name: "w", Expression: "variables.v"}}
		p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "m", Expression: "dyn(" + expression + ") == 1 || true"}}
		p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: expression, MessageExpression: "string(" + expression + ")"}, {Expression: "dyn(variables.w) == dyn(" + expression + ")"}}
		p.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "k", ValueExpression: "string(" + expression + ")"}}
		store.Put(policies, p)
		a := admissiontest.Update(pod, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}})
		start := time.Now()
		err := admission.NewChain(plugin).Validate(context.Background(), a, func(string) {})
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s took %v: %v", expression, took, err)
		}
		// Writing the policy must not panic either.
		admissiontest.Info(p).Validate(p)
	})
}
