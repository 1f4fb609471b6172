package mutating_test

import (
	"context"
	"maps"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apitest"
)

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// enforce creates a policy with the given spec and a binding for all of the cluster, both called name.
func enforce(t *testing.T, c kubernetes.Interface, name, spec string) {
	t.Helper()
	p := admissiontest.Parse(t, &admissionregistrationv1.MutatingAdmissionPolicy{}, spec)
	p.Name = name
	if p.Spec.ReinvocationPolicy == "" {
		p.Spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	}
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, condition func(context.Context) bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition(t.Context()) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func deployment(name string) *appsv1.Deployment {
	replicas, labels := int32(1), map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}}, Spec: appsv1.DeploymentSpec{Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
}

const onDeployments = `
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]}
`

func TestApplyConfigurationAndJSONPatch(t *testing.T) {
	c := apitest.Start(t).Client()
	enforce(t, c, "apply", "spec:"+onDeployments+`
  variables: [{name: many, expression: object.spec.replicas + 1336}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{replicas: variables.many}, metadata: Object.metadata{labels: object.metadata.labels}}"}
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'sidecar', image: 's'}]}}}}"}
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        [JSONPatch{op: "test", path: "/spec/replicas", value: 1337},
         JSONPatch{op: "add", path: "/metadata/annotations", value: {"my-foo": "my-val"}},
         JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/x"), value: "y"}]
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "test", path: "/spec/replicas", value: 1}, JSONPatch{op: "remove", path: "/metadata/labels"}]'}
`)
	deployments := c.AppsV1().Deployments("default")
	var d *appsv1.Deployment
	eventually(t, "a mutation", func(ctx context.Context) bool {
		var err error
		if d, err = deployments.Create(ctx, deployment("x"), dryRun); err != nil {
			t.Fatal(err)
		}
		return len(d.Annotations) > 0
	})
	if *d.Spec.Replicas != 1337 || d.Annotations["my-foo"] != "my-val" || !maps.Equal(d.Labels, map[string]string{"a": "b", "example.com/x": "y"}) {
		t.Errorf("replicas %d, annotations %v, labels %v", *d.Spec.Replicas, d.Annotations, d.Labels)
	}
	containers := d.Spec.Template.Spec.Containers
	if len(containers) != 2 || containers[0].Image != "i" || containers[1].Name != "sidecar" || containers[1].ImagePullPolicy != corev1.PullAlways {
		t.Errorf("the containers are %+v", containers)
	}
	stored, err := deployments.Create(t.Context(), deployment("y"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Spec.Replicas = new(int32)
	if stored, err = deployments.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil || *stored.Spec.Replicas != 1336 {
		t.Errorf("an update was not mutated: %v", err)
	}
}

func TestFailures(t *testing.T) {
	c := apitest.Start(t).Client()
	apply := func(expression string) string {
		return "spec:" + onDeployments + "  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: '" + expression + "'}}]\n"
	}
	patch := func(expression string) string {
		return "spec:" + onDeployments + "  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '" + expression + "'}}]\n"
	}
	for _, test := range []struct {
		name, spec, want string
		reason           metav1.StatusReason
		code             int32
	}{
		{"atomic", apply(`Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {"x": "y"}}}}`),
			"error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector", metav1.StatusReasonInvalid, 403},
		{"mismatch", apply(`Object{spec: Object.spec{selector: Object.spec.wrong{}}}`),
			`type mismatch: unexpected type name "Object.spec.wrong", expected "Object.spec.selector", which matches field name path from root Object type`, metav1.StatusReasonInvalid, 403},
		{"unknown", apply(`Object{spec: Object.spec{nonsense: 1}}`),
			"error applying patch: failed to convert patch object to typed object: .spec.nonsense: field not declared in schema", metav1.StatusReasonInvalid, 403},
		{"absent", apply(`Object{spec: Object.spec{replicas: object.spec.nonsense}}`),
			"expression 'Object{spec: Object.spec{replicas: object.spec.nonsense}}' resulted in error: no such key: nonsense", metav1.StatusReasonInvalid, 403},
		{"path", patch(`[JSONPatch{op: "remove", path: "/spec/nonsense"}]`),
			"JSON Patch: error in remove for path: '/spec/nonsense': Unable to remove nonexistent key: nonsense: missing value", metav1.StatusReasonInvalid, 403},
		{"strict", patch(`[JSONPatch{op: "add", path: "/spec/nonsense", value: 1}]`),
			`strict decoding error: unknown field "spec.nonsense"`, metav1.StatusReasonInternalError, 500},
	} {
		t.Run(test.name, func(t *testing.T) {
			enforce(t, c, test.name, test.spec)
			var err error
			eventually(t, "a refusal", func(ctx context.Context) bool {
				_, err = c.AppsV1().Deployments("default").Create(ctx, deployment("x"), dryRun)
				return err != nil
			})
			want := "policy '" + test.name + "' with binding '" + test.name + "' denied request: " + test.want
			if test.code == 500 {
				want = "Internal error occurred: " + test.want
			}
			status, ok := err.(*apierrors.StatusError)
			if !ok || status.ErrStatus.Message != want || status.ErrStatus.Reason != test.reason || status.ErrStatus.Code != test.code {
				t.Errorf("refused with %#v\nwant         %s", status, want)
			}
			p, err := c.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(t.Context(), test.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if test.code != 500 {
				ignore := admissionregistrationv1.Ignore
				p.Spec.FailurePolicy = &ignore
				if _, err = c.AdmissionregistrationV1().MutatingAdmissionPolicies().Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the change of the failure policy", func(ctx context.Context) bool {
					_, err := c.AppsV1().Deployments("default").Create(ctx, deployment("x"), dryRun)
					return err == nil
				})
			}
			if err := c.AdmissionregistrationV1().MutatingAdmissionPolicies().Delete(t.Context(), test.name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the end of the policy", func(ctx context.Context) bool {
				_, err := c.AppsV1().Deployments("default").Create(ctx, deployment("x"), dryRun)
				return err == nil
			})
		})
	}
}

// TestReinvocation: a policy that has run before the object was changed runs again if it asks for that, and only then.
func TestReinvocation(t *testing.T) {
	c := apitest.Start(t).Client()
	count := func(reinvoke string) string {
		return "spec:" + onDeployments + "  reinvocationPolicy: " + reinvoke + `
  matchConditions: [{name: marked, expression: "has(object.metadata.annotations) && 'marked' in object.metadata.annotations"}]
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"}}]
`
	}
	enforce(t, c, "a-never", count("Never"))
	enforce(t, c, "b-if-needed", count("IfNeeded"))
	enforce(t, c, "c-marker", "spec:"+onDeployments+`
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{annotations: {'marked': 'yes'}}}"}}]
`)
	create := func(marked bool) int32 {
		d := deployment("x")
		if marked {
			d.Annotations = map[string]string{"marked": "yes"}
		}
		got, err := c.AppsV1().Deployments("default").Create(t.Context(), d, dryRun)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Annotations) == 0 {
			return 0
		}
		return *got.Spec.Replicas
	}
	eventually(t, "the marker", func(context.Context) bool { return create(false) > 0 })
	// Unmarked, neither runs before the marker; what did not run is not due in the second run.
	if got := create(false); got != 1 {
		t.Errorf("%d replicas without a mark, want 1", got)
	}
	// Marked, a-never adds one, and b-if-needed one in each run. As upstream, it runs again although nothing changes the object after it.
	if got := create(true); got != 4 {
		t.Errorf("%d replicas with a mark, want 4", got)
	}
}

func TestParams(t *testing.T) {
	c := apitest.Start(t).Client()
	for name, value := range map[string]string{"one": "1", "two": "2"} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"param": "yes"}}, Data: map[string]string{name: value}}
		if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p := admissiontest.Parse(t, &admissionregistrationv1.MutatingAdmissionPolicy{}, `
metadata: {name: params}
spec: {paramKind: {apiVersion: v1, kind: ConfigMap}, reinvocationPolicy: Never,`+onDeployments[3:]+`,
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{annotations: params.data}}"}}]}
`)
	b := admissiontest.Parse(t, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, `
metadata: {name: params}
spec: {policyName: params, paramRef: {selector: {matchLabels: {param: "yes"}}, parameterNotFoundAction: Deny}}
`)
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a mutation by both parameters", func(ctx context.Context) bool {
		d, err := c.AppsV1().Deployments("default").Create(ctx, deployment("x"), dryRun)
		if err != nil {
			t.Fatal(err)
		}
		return maps.Equal(d.Annotations, map[string]string{"one": "1", "two": "2"})
	})
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.AppsV1().Deployments("other").Create(t.Context(), deployment("x"), dryRun)
	const want = "policy 'params' with binding 'params' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("refused with %v\nwant         %s", err, want)
	}
}
