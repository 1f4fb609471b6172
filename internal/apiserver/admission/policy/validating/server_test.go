package validating_test

import (
	"context"
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

// newCluster starts an API server and returns its client and the name of a namespace with the label unique.
func newCluster(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	c := apitest.Start(t).Client()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "policed", Labels: map[string]string{"unique": "policed"}}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c, namespace.Name
}

// enforce creates a policy and a binding of the same name, and waits until a marker of the binding is denied.
func enforce(t *testing.T, c kubernetes.Interface, policy, binding string) {
	t.Helper()
	p := admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, policy)
	b := admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, binding)
	if _, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the condition holds.
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

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
}

func TestDeploymentIsDenied(t *testing.T) {
	c, namespace := newCluster(t)
	enforce(t, c, `
metadata: {name: replicas.example.com}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {unique: policed}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  variables:
  - {name: replicas, expression: object.spec.replicas}
  - {name: odd, expression: variables.replicas % 2 == 1}
  validations:
  - expression: object.spec.replicas > 1
    messageExpression: "'wants replicas > 1, got ' + object.spec.replicas"
  - expression: namespaceObject.metadata.name == 'policed'
  - expression: variables.odd
`, `
metadata: {name: binding.example.com}
spec: {policyName: replicas.example.com, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {unique: policed}}}}
`)
	deployments := c.AppsV1().Deployments(namespace)
	var denied error
	eventually(t, "the denial of a Deployment", func(ctx context.Context) bool {
		_, denied = deployments.Create(ctx, deployment("marker", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return denied != nil
	})
	const message = `ValidatingAdmissionPolicy 'replicas.example.com' with binding 'binding.example.com' denied request: failed expression: object.spec.replicas > 1`
	if want := `deployments.apps "marker" is forbidden: ` + message; !apierrors.IsInvalid(denied) || denied.Error() != want {
		t.Errorf("denied with %v\nwant        %s", denied, want)
	}
	status := denied.(*apierrors.StatusError).ErrStatus
	if status.Code != 422 || len(status.Details.Causes) != 1 || status.Details.Causes[0].Message != message {
		t.Errorf("the status is %+v", status)
	}
	if _, err := deployments.Create(t.Context(), deployment("replicated", 3), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := deployments.Create(t.Context(), deployment("even", 2), metav1.CreateOptions{}); err == nil {
		t.Error("an even number of replicas was allowed")
	}
	if _, err := c.AppsV1().Deployments("default").Create(t.Context(), deployment("elsewhere", 1), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func TestStatusHasTypeChecking(t *testing.T) {
	c, _ := newCluster(t)
	policies := c.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	p := admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, `
metadata: {name: confused}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: "object.spec.replicas > '1'", messageExpression: "'got ' + object.spec.replicas"}]
`)
	p, err := policies.Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	checked := func(ctx context.Context) bool {
		var err error
		if p, err = policies.Get(ctx, "confused", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		return p.Status.ObservedGeneration == p.Generation
	}
	eventually(t, "type checking", checked)
	if got := p.Status.TypeChecking; got == nil || len(got.ExpressionWarnings) != 2 || got.ExpressionWarnings[1].FieldRef != "spec.validations[0].messageExpression" {
		t.Errorf("the status is %+v", p.Status)
	}
	p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "object.spec.replicas > 1"}}
	if p, err = policies.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "type checking of the change", checked)
	if p.Generation != 2 || p.Status.TypeChecking == nil || len(p.Status.TypeChecking.ExpressionWarnings) != 0 {
		t.Errorf("generation %d, the status is %+v", p.Generation, p.Status)
	}
}
