package rbac

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

// test/differential/authorization/testdata/escalation.questions shows what is refused, and with which text. The tests here show what it
// cannot.

func TestGuardReadsRolesFromTheStore(t *testing.T) {
	known, newest := objectstest.New(), objectstest.New()
	known.Put(ClusterRoles, newClusterRole("mine", pods))
	known.Put(ClusterRoleBindings, newClusterBinding("mine", "mine", user("ada")))
	newest.Put(Roles, newRole("team", "just-made", pods)) // the index has not observed it
	a := New(known)
	g := NewGuard(a, authz.Chain{authz.Masters{}, a}, newest)
	ada := Writer{User: &authn.User{Username: "ada"}}
	if err := g.CheckBinding(t.Context(), ada, newBinding("team", "b", "Role", "just-made"), nil); err != nil {
		t.Error(err)
	}
	err := g.CheckBinding(t.Context(), ada, newBinding("team", "b", "Role", "not-made"), nil)
	if !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func TestGuardRefusesWithoutUser(t *testing.T) {
	store := objectstest.New()
	store.Put(ClusterRoles, newClusterRole("reader", pods))
	a := New(store)
	g := NewGuard(a, authz.AlwaysAllow{}, store)
	if err := g.CheckRole(t.Context(), Writer{}, newClusterRole("x", pods), nil); err == nil || !strings.Contains(err.Error(), "no user on context") {
		t.Error(err)
	}
	if err := g.CheckBinding(t.Context(), Writer{}, newClusterBinding("x", "reader"), nil); err == nil || !strings.Contains(err.Error(), "no user on context") {
		t.Error(err)
	}
	known := Writer{User: &authn.User{Username: "ada"}}
	if err := g.CheckRole(t.Context(), known, newClusterRole("x", pods), nil); err != nil {
		t.Error("a user who may do everything may escalate:", err)
	}
	if err := g.CheckBinding(t.Context(), known, newClusterBinding("x", "gone"), nil); err != nil {
		t.Error("a user who may do everything may bind:", err)
	}
	if err := g.CheckBinding(t.Context(), known, newBinding("team", "x", "Pod", "gone"), nil); err == nil || err.Error() != `unsupported role reference kind: "Pod"` {
		t.Error(err)
	}
	if g.CheckRole(t.Context(), known, newClusterBinding("x", "y"), nil) == nil || g.CheckBinding(t.Context(), known, newClusterRole("x"), nil) == nil {
		t.Error("a binding is no role and a role no binding")
	}
}

func TestOnlyForGarbageCollection(t *testing.T) {
	old := newClusterRole("x", pods)
	for name, test := range map[string]struct {
		change func(*rbacv1.ClusterRole)
		want   bool
	}{
		"nothing":        {func(*rbacv1.ClusterRole) {}, true},
		"finalizers":     {func(r *rbacv1.ClusterRole) { r.Finalizers = []string{"a"} }, true},
		"owners":         {func(r *rbacv1.ClusterRole) { r.OwnerReferences = []metav1.OwnerReference{{Name: "a"}} }, true},
		"managed fields": {func(r *rbacv1.ClusterRole) { r.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "a"}} }, true},
		"its kind":       {func(r *rbacv1.ClusterRole) { r.Kind, r.APIVersion = "ClusterRole", "rbac.authorization.k8s.io/v1" }, true},
		"no rules":       {func(r *rbacv1.ClusterRole) { r.Rules = nil }, false},
		"a label":        {func(r *rbacv1.ClusterRole) { r.Labels = map[string]string{"a": "b"} }, false},
	} {
		obj := old.DeepCopy()
		test.change(obj)
		if got := onlyForGarbageCollection(obj, old); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if onlyForGarbageCollection(old, catalog.Object(nil)) {
		t.Error("a new object")
	}
}
