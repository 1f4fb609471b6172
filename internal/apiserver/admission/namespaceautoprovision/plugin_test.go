package namespaceautoprovision_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/namespaceautoprovision"
	"skiff/internal/apiserver/objects/objectstest"
)

func TestNamespacesAreCreated(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: "p"}}
	known := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "known", Name: "p"}}
	dry := admissiontest.Create(pod)
	dry.DryRun = true
	for _, c := range []struct {
		name    string
		write   *admission.Attributes
		fails   error
		created string
		refusal string
	}{
		{"a new one", admissiontest.Create(pod), nil, "new", ""},
		{"one that is there", admissiontest.Create(known), nil, "", ""},
		{"for a dry run", dry, nil, "", ""},
		{"for an update", admissiontest.Update(pod, pod), nil, "", ""},
		{"for what has none", admissiontest.Create(&corev1.Node{}), nil, "", ""},
		{"one that somebody else creates", admissiontest.Create(pod), apierrors.NewAlreadyExists(corev1.Resource("namespaces"), "new"), "new", ""},
		{"one that cannot be created", admissiontest.Create(pod), errors.New("no"), "new", `pods "p" is forbidden: no`},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, created := objectstest.New(), ""
			store.Put(corev1.Resource("namespaces"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "known"}})
			plugin := namespaceautoprovision.New(store, func(_ context.Context, n *corev1.Namespace) error {
				created = n.Name
				return c.fails
			})
			admissiontest.Expect(t, admissiontest.Through(t, plugin, c.write), c.refusal)
			if created != c.created {
				t.Errorf("created %q, want %q", created, c.created)
			}
		})
	}
}

func TestNamespacesThemselves(t *testing.T) {
	a := admissiontest.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	a.Namespace = "n" // as upstream has it for namespaces
	plugin := namespaceautoprovision.New(objectstest.New(), func(context.Context, *corev1.Namespace) error { return errors.New("called") })
	admissiontest.Expect(t, admissiontest.Through(t, plugin, a), "")
}
