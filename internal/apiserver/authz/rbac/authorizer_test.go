package rbac

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/test/seed"
)

// The questions in test/differential/authorization show that the rules mean what they mean upstream. The tests here show that the index keeps
// up with changes, and what it costs.

func allow(verbs, groups, resources []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: groups, Resources: resources}
}

func newRole(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
}

func newClusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func newBinding(namespace, name, kind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}, Subjects: subjects}
}

func newClusterBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects}
}

func user(name string) rbacv1.Subject  { return rbacv1.Subject{Kind: "User", Name: name} }
func group(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "Group", Name: name} }

func getPods(name, namespace string, groups ...string) *authz.Attributes {
	return &authz.Attributes{User: &authn.User{Username: name, Groups: groups}, Verb: "get", Resource: true,
		Version: "v1", Plural: "pods", Namespace: namespace, Name: "web"}
}

func ask(t *testing.T, a *Authorizer, at *authz.Attributes) string {
	t.Helper()
	decision, reason, err := a.Authorize(t.Context(), at)
	if err != nil || decision == authz.Deny {
		t.Fatal(decision, err)
	}
	if (decision == authz.Allow) != (reason != "" && reason[:5] == "RBAC:" && reason[6:13] == "allowed") {
		t.Errorf("decision %v with reason %q", decision, reason)
	}
	return reason
}

var pods = allow([]string{"get"}, []string{""}, []string{"pods"})

func TestIndexFollowsChanges(t *testing.T) {
	store := objectstest.New()
	store.Put(ClusterRoleBindings, newClusterBinding("early", "reader", user("ada"))) // before the authorizer, and before its role
	a := New(store)
	expect := func(step, want string, at *authz.Attributes) {
		t.Helper()
		if got := ask(t, a, at); got != want {
			t.Errorf("%s: %q, want %q", step, got, want)
		}
	}
	ada := getPods("ada", "team")
	const byEarly = `RBAC: allowed by ClusterRoleBinding "early" of ClusterRole "reader" to User "ada"`
	expect("no role yet", `RBAC: clusterrole.rbac.authorization.k8s.io "reader" not found`, ada)
	store.Put(ClusterRoles, newClusterRole("reader"))
	expect("an empty role", "", ada)
	store.Put(ClusterRoles, newClusterRole("reader", pods))
	expect("a rule", byEarly, ada)
	store.Put(ClusterRoleBindings, newClusterBinding("early", "reader", user("bob"), group("ops")))
	expect("other subjects", "", ada)
	expect("a group", `RBAC: allowed by ClusterRoleBinding "early" of ClusterRole "reader" to Group "ops"`, getPods("ada", "team", "ops"))
	store.Remove(ClusterRoles, "", "reader")
	expect("the role is deleted", `RBAC: clusterrole.rbac.authorization.k8s.io "reader" not found`, getPods("bob", "team"))

	store.Put(Roles, newRole("team", "reader", pods))
	store.Put(RoleBindings, newBinding("team", "b", "Role", "reader", group("dev"), user("ada")))
	expect("in a namespace, by the first subject", `RBAC: allowed by RoleBinding "b/team" of Role "reader" to Group "dev"`, getPods("ada", "team", "x", "dev"))
	expect("in another namespace", "", getPods("ada", "other", "dev"))
	expect("in all namespaces", "", getPods("ada", "", "dev"))
	store.Put(RoleBindings, newBinding("team", "a", "Role", "gone", user("ada")))
	expect("a missing role does not hurt", `RBAC: allowed by RoleBinding "b/team" of Role "reader" to User "ada"`, ada)
	store.Remove(RoleBindings, "team", "b")
	expect("the binding is deleted", `RBAC: role.rbac.authorization.k8s.io "gone" not found`, ada)
	store.Remove(RoleBindings, "team", "a")
	store.Remove(ClusterRoleBindings, "", "early")
	store.Remove(Roles, "team", "reader")
	if len(a.index.roles) != 0 || len(a.index.grants) != 0 {
		t.Errorf("of nothing there remain %v and %v", a.index.roles, a.index.grants)
	}
	if decision, reason, err := a.Authorize(t.Context(), &authz.Attributes{Verb: "get"}); decision != authz.NoOpinion || reason != "" || err != nil {
		t.Error("a request without a user:", decision, reason, err)
	}
}

// TestIndexAgreesWithAScan changes roles and bindings at random and compares every decision with one found by a scan of all of them.
func TestIndexAgreesWithAScan(t *testing.T) {
	seed := seed.New(t)
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	store := objectstest.New()
	a := New(store)
	subjects := func() (list []rbacv1.Subject) {
		for range r.IntN(4) {
			list = append(list, rbacv1.Subject{Kind: pick("User", "Group", "ServiceAccount"), Namespace: pick("", "x", "y"), Name: pick("a", "b", "c")})
		}
		return list
	}
	for range 3000 {
		namespace, name, role := pick("x", "y"), pick("1", "2", "3"), pick("r", "s", "t")
		rule := allow([]string{pick("get", "list", "*")}, []string{""}, []string{pick("pods", "secrets", "*")})
		switch r.IntN(6) {
		case 0:
			store.Put(Roles, newRole(namespace, role, rule))
		case 1:
			store.Put(ClusterRoles, newClusterRole(role, rule))
		case 2:
			store.Put(RoleBindings, newBinding(namespace, name, pick("Role", "ClusterRole"), role, subjects()...))
		case 3:
			store.Put(ClusterRoleBindings, newClusterBinding(name, role, subjects()...))
		case 4:
			store.Remove(Roles, namespace, role)
			store.Remove(RoleBindings, namespace, name)
		case 5:
			store.Remove(ClusterRoles, "", role)
			store.Remove(ClusterRoleBindings, "", name)
		}
		who := &authn.User{Username: pick("a", "b", "system:serviceaccount:x:a", "system:serviceaccount:y:b"), Groups: []string{pick("a", "c"), "b"}}
		at := &authz.Attributes{User: who, Verb: pick("get", "list"), Resource: true, Plural: pick("pods", "secrets", "nodes"), Namespace: pick("", "x", "y")}
		decision, reason, _ := a.Authorize(t.Context(), at)
		reasons := scan(store, at)
		if (decision == authz.Allow) != (len(reasons) > 0) || decision == authz.Allow && !slices.Contains(reasons, reason) {
			t.Fatalf("%+v: %v %q, want one of %q", at, decision, reason, reasons)
		}
	}
}

// scan returns all reasons to allow the request, by a scan of all bindings.
func scan(store *objectstest.Store, at *authz.Attributes) (reasons []string) {
	look := func(namespace, what string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		var rules []rbacv1.PolicyRule
		if role, ok := store.Get(Roles, namespace, ref.Name).(*rbacv1.Role); ok && ref.Kind == "Role" {
			rules = role.Rules
		} else if role, ok := store.Get(ClusterRoles, "", ref.Name).(*rbacv1.ClusterRole); ok && ref.Kind == "ClusterRole" {
			rules = role.Rules
		}
		if !Allows(rules, at) {
			return
		}
		for _, s := range subjects {
			home, name := s.Namespace, s.Name
			if home == "" {
				home = namespace
			}
			var is bool
			switch s.Kind {
			case "User":
				is = s.Name == at.User.Username
			case "Group":
				is = slices.Contains(at.User.Groups, s.Name)
			case "ServiceAccount":
				is, name = home != "" && at.User.Username == "system:serviceaccount:"+home+":"+s.Name, s.Name+"/"+home
			}
			if is {
				reasons = append(reasons, fmt.Sprintf("RBAC: allowed by %s of %s %q to %s %q", what, ref.Kind, ref.Name, s.Kind, name))
				return
			}
		}
	}
	for _, obj := range store.List(ClusterRoleBindings, "") {
		b := obj.(*rbacv1.ClusterRoleBinding)
		look("", fmt.Sprintf("ClusterRoleBinding %q", b.Name), b.RoleRef, b.Subjects)
	}
	if at.Namespace != "" {
		for _, obj := range store.List(RoleBindings, at.Namespace) {
			b := obj.(*rbacv1.RoleBinding)
			look(b.Namespace, fmt.Sprintf("RoleBinding %q", b.Name+"/"+b.Namespace), b.RoleRef, b.Subjects)
		}
	}
	return reasons
}

func TestDecisionsAllocateNothing(t *testing.T) {
	store := objectstest.New()
	a := New(store)
	store.Put(Roles, newRole("team", "reader", pods, allow([]string{"get"}, []string{""}, []string{"pods/log", "*/scale"})))
	store.Put(RoleBindings, newBinding("team", "readers", "Role", "reader", group("dev")))
	yes, no, sub := getPods("ada", "team", "ops", "dev"), getPods("bob", "team", "ops"), getPods("ada", "team", "dev")
	sub.Subresource = "log"
	for name, at := range map[string]*authz.Attributes{"allowed": yes, "not allowed": no, "subresource": sub} {
		if n := testing.AllocsPerRun(100, func() { a.Authorize(t.Context(), at) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestConcurrentDecisionsAndChanges(t *testing.T) {
	store := objectstest.New()
	a := New(store)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				a.Authorize(ctx, getPods("ada", "team", "dev"))
				a.RulesFor(ctx, &authn.User{Username: "ada", Groups: []string{"dev"}}, "team")
			}
		})
	}
	for i := range 2000 {
		store.Put(Roles, newRole("team", "reader", pods))
		store.Put(RoleBindings, newBinding("team", "readers", "Role", "reader", group("dev"), user(fmt.Sprint("u", i%7))))
		store.Remove(Roles, "team", "reader")
	}
	cancel()
	wg.Wait()
}
