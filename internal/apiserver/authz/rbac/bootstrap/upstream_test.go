package bootstrap

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"skiff/internal/apiserver/authz/rbac"
)

// recorded returns the roles and bindings of a new upstream cluster: see test/differential/authorization.
func recorded(t *testing.T) Policy {
	f, err := os.Open("testdata/upstream.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var p Policy
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20) // the longest line
	for lines.Scan() {
		var head metav1.TypeMeta
		if err := json.Unmarshal(lines.Bytes(), &head); err != nil {
			t.Fatal(err)
		}
		switch head.Kind {
		case "ClusterRole":
			p.ClusterRoles = append(p.ClusterRoles, parse[rbacv1.ClusterRole](t, lines.Bytes()))
		case "ClusterRoleBinding":
			p.ClusterRoleBindings = append(p.ClusterRoleBindings, parse[rbacv1.ClusterRoleBinding](t, lines.Bytes()))
		case "Role":
			p.Roles = append(p.Roles, parse[rbacv1.Role](t, lines.Bytes()))
		case "RoleBinding":
			p.RoleBindings = append(p.RoleBindings, parse[rbacv1.RoleBinding](t, lines.Bytes()))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func parse[T any](t *testing.T, line []byte) *T {
	obj := new(T)
	if err := json.Unmarshal(line, obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestDefaultsAreUpstreams compares every object with that of an upstream server, rule for rule in their order, and the aggregated rules with
// those that upstream's controller writes.
func TestDefaultsAreUpstreams(t *testing.T) {
	want, got := recorded(t), Default()
	own := func(o metav1.Object) bool { return Own(o.GetName()) }
	got.ClusterRoles = slices.DeleteFunc(got.ClusterRoles, func(r *rbacv1.ClusterRole) bool { return own(r) })
	got.ClusterRoleBindings = slices.DeleteFunc(got.ClusterRoleBindings, func(b *rbacv1.ClusterRoleBinding) bool { return own(b) })
	got.Roles = slices.DeleteFunc(got.Roles, func(r *rbacv1.Role) bool { return own(r) })
	got.RoleBindings = slices.DeleteFunc(got.RoleBindings, func(b *rbacv1.RoleBinding) bool { return own(b) })
	for name, rules := range rbac.Aggregate(got.ClusterRoles) {
		for _, r := range got.ClusterRoles {
			if r.Name == name {
				r.Rules = rules
			}
		}
	}
	if len(want.ClusterRoles) != 73 || len(want.ClusterRoleBindings) != 54 || len(want.Roles) != 7 || len(want.RoleBindings) != 7 {
		t.Errorf("recorded: %d cluster roles, %d bindings of those, %d roles, %d bindings of those",
			len(want.ClusterRoles), len(want.ClusterRoleBindings), len(want.Roles), len(want.RoleBindings))
	}
	compare(t, want.ClusterRoles, got.ClusterRoles, func(r *rbacv1.ClusterRole) string { return r.Name })
	compare(t, want.ClusterRoleBindings, got.ClusterRoleBindings, func(b *rbacv1.ClusterRoleBinding) string { return b.Name })
	compare(t, want.Roles, got.Roles, func(r *rbacv1.Role) string { return r.Namespace + "/" + r.Name })
	compare(t, want.RoleBindings, got.RoleBindings, func(b *rbacv1.RoleBinding) string { return b.Namespace + "/" + b.Name })
}

func compare[T any](t *testing.T, want, got []T, name func(T) string) {
	t.Helper()
	byName := func(list []T) map[string]T {
		found := map[string]T{}
		for _, obj := range list {
			if _, twice := found[name(obj)]; twice {
				t.Errorf("%s is there twice", name(obj))
			}
			found[name(obj)] = obj
		}
		return found
	}
	if diff := cmp.Diff(byName(want), byName(got), cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
		t.Errorf("(-upstream +skiff):\n%s", diff)
	}
}
