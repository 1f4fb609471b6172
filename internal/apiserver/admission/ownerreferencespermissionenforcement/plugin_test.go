package ownerreferencespermissionenforcement_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission/admissiontest"
	owners "skiff/internal/apiserver/admission/ownerreferencespermissionenforcement"
	"skiff/internal/apiserver/authz"
)

// allowed is an authorizer that allows requests by their text.
type allowed []string

func (list allowed) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	text := strings.Join([]string{a.Verb, a.Group, a.Version, a.Plural, a.Subresource, a.Namespace, a.Name}, "/")
	for _, one := range list {
		if one == text {
			return authz.Allow, "", nil
		}
	}
	return authz.NoOpinion, "not " + text, nil
}

func mapper(kind schema.GroupVersionKind) []owners.Resource {
	switch kind {
	case appsv1.SchemeGroupVersion.WithKind("ReplicaSet"):
		return []owners.Resource{{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("replicasets"), Namespaced: true}}
	case corev1.SchemeGroupVersion.WithKind("Node"):
		return []owners.Resource{{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes")}}
	}
	return nil
}

func TestOwners(t *testing.T) {
	const (
		set      = `{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: "1", blockOwnerDeletion: false}`
		blocking = `{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: "1", blockOwnerDeletion: true}`
		node     = `{apiVersion: v1, kind: Node, name: one, uid: "2", blockOwnerDeletion: true}`
		unknown  = `{apiVersion: v2, kind: Nothing, name: one, uid: "3", blockOwnerDeletion: true}`
		broken   = `{apiVersion: a/b/c, kind: Nothing, name: one, uid: "3", blockOwnerDeletion: true}`

		remove   = "delete//v1/pods//ns/p"
		anything = "update/*/*/*/finalizers//*"
		ofSet    = "update/apps/v1/replicasets/finalizers/ns/r"
		ofNode   = "update//v1/nodes/finalizers//one"

		noDelete = `pods "p" is forbidden: cannot set an ownerRef on a resource you can't delete: not delete//v1/pods//ns/p, <nil>`
		noBlock  = `pods "p" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: not `
		noKind   = `pods "p" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion `
	)
	for _, c := range []struct {
		name     string
		old, new string // "-" is no object
		allowed  allowed
		refusal  string
	}{
		{"a new object without", "-", ``, nil, ""},
		{"a new object with one", "-", set, nil, ""},
		{"a new object with a blocking one", "-", blocking, nil, noBlock + ofSet + ", <nil>"},
		{"a new object with a blocking one of its namespace", "-", blocking, allowed{ofSet}, ""},
		{"a new object with a blocking one of no namespace", "-", node, allowed{ofNode}, ""},
		{"a new object with two, for one of which", "-", blocking + "," + node, allowed{ofSet}, noBlock + ofNode + ", <nil>"},
		{"who may anything", "-", blocking + "," + unknown, allowed{anything}, ""},
		{"a kind that is not served", "-", unknown, nil, noKind + `v2 Kind Nothing: no matches for kind "Nothing" in version "v2"`},
		{"a version of nonsense", "-", broken, nil, noKind + `a/b/c Kind Nothing: unexpected GroupVersion string: a/b/c`},
		{"an update that changes none", set, set, nil, ""},
		{"an update that adds one", ``, set, nil, noDelete},
		{"an update that removes one", set, ``, nil, noDelete},
		{"an update by who may delete", ``, set, allowed{remove}, ""},
		{"an update that blocks", set, blocking, allowed{remove}, noBlock + ofSet + ", <nil>"},
		{"an update that blocks, by who may", set, blocking, allowed{remove, ofSet}, ""},
		{"an update beside what blocked before", blocking, blocking + "," + set, allowed{remove}, ""},
		{"an update that does not block any more", blocking, set, allowed{remove}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := func(refs string) *corev1.Pod {
				return &corev1.Pod{ObjectMeta: *admissiontest.Parse(t, &metav1.ObjectMeta{}, `{namespace: ns, name: p, ownerReferences: [`+refs+`]}`)}
			}
			a := admissiontest.Create(pod(c.new))
			if c.old != "-" {
				a = admissiontest.Update(pod(c.new), pod(c.old))
			}
			plugin := owners.New(c.allowed, mapper)
			admissiontest.Expect(t, admissiontest.Through(t, plugin, a), c.refusal)
			admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Subresource(a, &corev1.Pod{}, "status")), "")
		})
	}
}
