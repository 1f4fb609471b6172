package matchconditions_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission/matchconditions"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

// asked is an authorizer that allows what its text names.
type asked string

func (w asked) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	text := fmt.Sprintf("%s %s %s.%s/%s %s/%s %s?%s&%s", a.User.Username, a.Verb, a.Plural, a.Group, a.Subresource, a.Namespace, a.Name, a.Path, a.FieldSelector, a.LabelSelector)
	if text == string(w) {
		return authz.Allow, "yes", nil
	}
	return authz.NoOpinion, "asked for " + text, nil
}

func request() *matchconditions.Request {
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return &matchconditions.Request{
		Object: &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}}},
		Review: &admissionv1.AdmissionRequest{Name: "p", Namespace: "ns", Operation: "CREATE", Resource: resource, RequestResource: &resource, RequestSubResource: "exec",
			UserInfo: authn.User{Username: "jane", Groups: []string{"g"}}},
		User: &authn.User{Username: "jane"},
	}
}

func TestMatch(t *testing.T) {
	const ten = "[1,2,3,4,5,6,7,8,9,10]"
	expensive := "object.metadata.name == 'p' && " + ten + ".all(a, " + ten + ".all(b, " + ten + ".all(c, " + ten + ".all(d, a+b+c+d > 0))))"
	for _, c := range []struct {
		name        string
		expressions []string
		allowed     asked
		matches     bool
		failing     string
		err         string
	}{
		{"nothing", nil, "", true, "", ""},
		{"true", []string{"true", "object.metadata.labels.a == 'b'"}, "", true, "", ""},
		{"false", []string{"true", "object.kind == 'Secret'", "false"}, "", false, "1", ""},
		{"an error", []string{"object.x == 1", "true"}, "", false, "", "expression 'object.x == 1' resulted in error: no such key: x"},
		{"two errors", []string{"object.x == 1", "oldObject.y == 1"}, "", false, "", "[expression 'object.x == 1' resulted in error: no such key: x, expression 'oldObject.y == 1' resulted in error: no such key: y]"},
		{"false after an error", []string{"object.x == 1", "false"}, "", false, "1", ""},
		{"not compiled", []string{"object."}, "", false, "", "compilation error: compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.'\n | object.\n | .......^"},
		{"not compiled, and false", []string{"object.", "false"}, "", false, "1", ""},
		{"the request", []string{"request.operation == 'CREATE'", "request.userInfo.groups == ['g']", "request.requestResource.resource == 'pods'"}, "", true, "", ""},
		{"no namespace", []string{"namespaceObject == null"}, "", true, "", ""},
		{"the authorizer", []string{"authorizer.group('apps').resource('deployments').namespace('n').check('get').allowed()"}, "jane get deployments.apps/ n/ ?&", true, "", ""},
		{"a path", []string{"authorizer.path('/x').check('get').allowed()"}, "jane get ./ / /x?&", true, "", ""},
		{"the resource of the request", []string{"authorizer.requestResource.check('run').allowed()"}, "jane run pods./exec ns/p ?&", true, "", ""},
		{"a service account", []string{"authorizer.serviceAccount('n', 'sa').group('').resource('pods').check('get').allowed()"}, "system:serviceaccount:n:sa get pods./ / ?&", true, "", ""},
		{"selectors", []string{"authorizer.group('').resource('pods').fieldSelector('a=b,c!=d').labelSelector('e in (f,g)').check('list').allowed()"}, "jane list pods./ / ?a=b,c!=d&e in (f,g)", true, "", ""},
		{"a reason", []string{"authorizer.group('').resource('pods').check('get').reason() == 'asked for jane get pods./ / ?&'"}, "", true, "", ""},
		{"too expensive together", strings.Split(strings.Repeat(expensive+";", 60)+"true", ";"), "", false, "",
			"validation failed due to running out of cost budget, no further validation rules will be run"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var conditions []admissionregistrationv1.MatchCondition
			for i, e := range c.expressions {
				conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprint(i), Expression: e})
			}
			matches, failing, err := matchconditions.Compile(conditions, false, c.allowed).Match(t.Context(), request())
			text := ""
			if err != nil {
				text = err.Error()
			}
			if matches != c.matches || failing != c.failing || text != c.err {
				t.Errorf("got %t %q %s, want %t %q %s", matches, failing, text, c.matches, c.failing, c.err)
			}
		})
	}
}

// widget is an object without a Go type.
type widget struct{ corev1.ConfigMap }

func (w *widget) Root() (map[string]any, error) {
	return map[string]any{"kind": "Widget", "spec": map[string]any{"size": int64(3)}}, nil
}

func TestCustomObject(t *testing.T) {
	r := request()
	r.Object = &widget{}
	conditions := []admissionregistrationv1.MatchCondition{{Name: "size", Expression: "object.kind == 'Widget' && object.spec.size > 2"}}
	if matches, _, err := matchconditions.Compile(conditions, false, nil).Match(t.Context(), r); err != nil || !matches {
		t.Errorf("got %t, %v", matches, err)
	}
}
