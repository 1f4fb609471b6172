package namespacelifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/namespacelifecycle"
)

// namespaces returns a finder whose cache lags behind its store. reads counts the reads of the store.
func namespaces(reads *int) namespacelifecycle.Namespaces {
	return func(_ context.Context, name string, fresh bool) (*corev1.Namespace, error) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if fresh {
			*reads++
		}
		switch {
		case name == "ending" || name == "deleted" && fresh:
			ns.Status.Phase = corev1.NamespaceTerminating
		case name == "missing" || name == "new" && !fresh:
			return nil, nil
		}
		return ns, nil
	}
}

func TestNamespaces(t *testing.T) {
	in := func(namespace string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "p-"}}
	}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, c := range []struct {
		name  string
		write *admission.Attributes
		want  string
	}{
		{"a good namespace", admissiontest.Create(in("good")), ""},
		{"one the cache has not seen", admissiontest.Create(in("new")), ""},
		{"none", admissiontest.Create(in("missing")), `namespaces "missing" not found`},
		{"one that ends", admissiontest.Create(in("ending")), `pods "p-" is forbidden: unable to create new content in namespace ending because it is being terminated`},
		{"updates where it ends", admissiontest.Update(in("ending"), in("ending")), ""},
		{"deletes where it ends", admissiontest.Delete(in("ending")), ""},
		{"questions about any", admissiontest.Create(&authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "missing"}}), ""},
		{"the end of a namespace", admissiontest.Delete(namespace("good")), ""},
		{"the end of one that must stay", admissiontest.Delete(namespace("kube-system")), `namespaces "kube-system" is forbidden: this namespace may not be deleted`},
		{"things without a namespace", admissiontest.Create(&corev1.Node{}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			admissiontest.Expect(t, admissiontest.Through(t, namespacelifecycle.New(namespaces(new(int))), c.write), c.want)
		})
	}
}

func TestStoreIsReadAfterADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		plugin := namespacelifecycle.New(namespaces(&reads))
		create := func() error {
			return admissiontest.Through(t, plugin, admissiontest.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "deleted", Name: "p"}}))
		}
		admissiontest.Expect(t, create(), "")
		admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "deleted"}})), "")
		admissiontest.Expect(t, create(), `pods "p" is forbidden: unable to create new content in namespace deleted because it is being terminated`)
		time.Sleep(31 * time.Second) // in the bubble's time
		before := reads
		admissiontest.Expect(t, create(), "")
		if reads != before {
			t.Error("the store is still read")
		}
	})
}
