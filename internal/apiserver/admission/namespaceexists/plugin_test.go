package namespaceexists_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/namespaceexists"
	"skiff/internal/apiserver/objects"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

// lagging has nothing in its cache yet.
type lagging struct{ objects.Reader }

func (lagging) Get(schema.GroupResource, string, string) catalog.Object { return nil }

// broken cannot read the store either.
type broken struct{ lagging }

func (broken) Fresh(context.Context, schema.GroupResource, string, string) (catalog.Object, error) {
	return nil, errors.New("the store is down")
}

func TestWritesInNamespaces(t *testing.T) {
	store := objectstest.New()
	store.Put(corev1.Resource("namespaces"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "known"}})
	in := func(namespace string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	}
	for _, c := range []struct {
		name    string
		reader  objects.Reader
		write   *admission.Attributes
		refusal string
	}{
		{"one that exists", store, admissiontest.Create(in("known")), ""},
		{"one that the cache does not have yet", lagging{store}, admissiontest.Create(in("known")), ""},
		{"none", store, admissiontest.Create(in("none")), `namespaces "none" not found`},
		{"an update in none", store, admissiontest.Update(in("none"), in("none")), `namespaces "none" not found`},
		{"a delete in none", store, admissiontest.Delete(in("none")), `namespaces "none" not found`},
		{"what is in no namespace", store, admissiontest.Create(&corev1.Node{}), ""},
		{"a store that cannot be read", broken{lagging{store}}, admissiontest.Create(in("none")), `Internal error occurred: the store is down`},
	} {
		t.Run(c.name, func(t *testing.T) {
			admissiontest.Expect(t, admissiontest.Through(t, namespaceexists.New(c.reader), c.write), c.refusal)
		})
	}
}
