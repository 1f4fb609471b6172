package rbac

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// The resources of RBAC.
var (
	Roles               = rbacv1.Resource("roles")
	ClusterRoles        = rbacv1.Resource("clusterroles")
	RoleBindings        = rbacv1.Resource("rolebindings")
	ClusterRoleBindings = rbacv1.Resource("clusterrolebindings")
)

// index knows which roles are bound to whom. It is as large as the roles and bindings there are.
type index struct {
	mu     sync.RWMutex
	roles  map[roleKey]*role
	grants map[subjectKey][]*grant // by the name of the binding
}

// roleKey names a role. A ClusterRole has no namespace.
type roleKey struct{ kind, namespace, name string }

// role is one that exists, or that a binding names.
type role struct {
	roleKey
	exists   bool
	rules    []rbacv1.PolicyRule
	bindings int
}

// subjectKey names whom a binding is for, and where it holds: in a namespace, or everywhere if that is empty.
type subjectKey struct {
	namespace string
	group     bool // else a user; service accounts are users
	name      string
}

type binding struct {
	namespace, name string
	role            *role
	subjects        []rbacv1.Subject
}

// grant is what a binding gives to one subject.
type grant struct {
	*binding
	subject int // the first of the binding's subjects that is the one it is filed under
	reason  atomic.Pointer[string]
}

// follow builds the index and keeps it.
func follow(reader objects.Reader) *index {
	ix := &index{roles: map[roleKey]*role{}, grants: map[subjectKey][]*grant{}}
	reader.Follow(ClusterRoles, locked(ix, func(r *rbacv1.ClusterRole, there bool) {
		ix.setRole(roleKey{"ClusterRole", "", r.Name}, r.Rules, there)
	}))
	reader.Follow(Roles, locked(ix, func(r *rbacv1.Role, there bool) {
		ix.setRole(roleKey{"Role", r.Namespace, r.Name}, r.Rules, there)
	}))
	reader.Follow(ClusterRoleBindings, locked(ix, func(b *rbacv1.ClusterRoleBinding, there bool) {
		ix.setBinding("", b.Name, b.RoleRef, b.Subjects, there)
	}))
	reader.Follow(RoleBindings, locked(ix, func(b *rbacv1.RoleBinding, there bool) {
		ix.setBinding(b.Namespace, b.Name, b.RoleRef, b.Subjects, there)
	}))
	return ix
}

// locked calls set with what is no longer there and then with what is, so that nobody sees the state between.
func locked[T any](ix *index, set func(obj T, there bool)) func(before, after catalog.Object) {
	return func(before, after catalog.Object) {
		ix.mu.Lock()
		defer ix.mu.Unlock()
		if before != nil {
			set(before.(T), false)
		}
		if after != nil {
			set(after.(T), true)
		}
	}
}

func (ix *index) setRole(key roleKey, rules []rbacv1.PolicyRule, there bool) {
	r := ix.role(key)
	if r.exists = there; !there {
		rules = nil
	}
	r.rules = rules
	ix.tidy(r)
}

func (ix *index) role(key roleKey) *role {
	r := ix.roles[key]
	if r == nil {
		r = &role{roleKey: key}
		ix.roles[key] = r
	}
	return r
}

// tidy forgets a role that neither exists nor is named by a binding.
func (ix *index) tidy(r *role) {
	if !r.exists && r.bindings == 0 {
		delete(ix.roles, r.roleKey)
	}
}

func (ix *index) setBinding(namespace, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject, there bool) {
	key := roleKey{ref.Kind, "", ref.Name}
	if ref.Kind == "Role" {
		key.namespace = namespace
	}
	r := ix.role(key)
	if there {
		r.bindings++
		ix.add(&binding{namespace, name, r, subjects})
	} else {
		r.bindings--
		ix.remove(namespace, name, subjects)
	}
	ix.tidy(r)
}

func (ix *index) add(b *binding) {
	for i := range b.subjects {
		key, ok := keyOf(&b.subjects[i], b.namespace)
		if !ok {
			continue
		}
		list := ix.grants[key]
		if at, found := slices.BinarySearchFunc(list, b.name, byName); !found { // the same subject may be listed twice
			ix.grants[key] = slices.Insert(list, at, &grant{binding: b, subject: i})
		}
	}
}

func (ix *index) remove(namespace, name string, subjects []rbacv1.Subject) {
	for i := range subjects {
		key, _ := keyOf(&subjects[i], namespace)
		list := ix.grants[key]
		at, found := slices.BinarySearchFunc(list, name, byName)
		if !found {
			continue
		}
		if list = slices.Delete(list, at, at+1); len(list) == 0 {
			delete(ix.grants, key)
		} else {
			ix.grants[key] = list
		}
	}
}

func byName(g *grant, name string) int { return strings.Compare(g.name, name) }

// keyOf says under which name a subject asks. A service account without a namespace is one of the binding's.
func keyOf(s *rbacv1.Subject, namespace string) (key subjectKey, ok bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subjectKey{namespace, false, s.Name}, true
	case rbacv1.GroupKind:
		return subjectKey{namespace, true, s.Name}, true
	case rbacv1.ServiceAccountKind:
		home := s.Namespace
		if home == "" {
			home = namespace
		}
		return subjectKey{namespace, false, authn.ServiceAccountUser(home, s.Name)}, home != ""
	}
	return subjectKey{}, false
}

// grantsTo goes through what is bound to a user, everywhere and in a namespace. A binding that names both the user and a group of the
// user comes more than once.
func (ix *index) grantsTo(user *authenticationv1.UserInfo, namespace string) iter.Seq[*grant] {
	return func(yield func(*grant) bool) {
		if ix.grantsIn("", user, yield) && namespace != "" {
			ix.grantsIn(namespace, user, yield)
		}
	}
}

func (ix *index) grantsIn(namespace string, user *authenticationv1.UserInfo, yield func(*grant) bool) bool {
	for i := -1; i < len(user.Groups); i++ {
		for _, g := range ix.grants[asks(user, i, namespace)] {
			if !yield(g) {
				return false
			}
		}
	}
	return true
}

// asks is the name under which a user asks: its own if i is negative, else that of a group.
func asks(user *authenticationv1.UserInfo, i int, namespace string) subjectKey {
	if i < 0 {
		return subjectKey{namespace, false, user.Username}
	}
	return subjectKey{namespace, true, user.Groups[i]}
}

// first returns the grant of the same binding to the first of its subjects that is the user.
func (ix *index) first(g *grant, user *authenticationv1.UserInfo) *grant {
	for i := -1; i < len(user.Groups); i++ {
		list := ix.grants[asks(user, i, g.namespace)]
		if at, found := slices.BinarySearchFunc(list, g.name, byName); found && list[at].subject < g.subject {
			g = list[at]
		}
	}
	return g
}

// why describes a grant as the reason of a decision. The text is made once.
func (g *grant) why() string {
	if reason := g.reason.Load(); reason != nil {
		return *reason
	}
	kind, name := "ClusterRoleBinding", g.name
	if g.namespace != "" {
		kind, name = "RoleBinding", g.name+"/"+g.namespace
	}
	s := &g.subjects[g.subject]
	subject := s.Name
	if s.Kind == rbacv1.ServiceAccountKind {
		home := s.Namespace
		if home == "" {
			home = g.namespace
		}
		subject += "/" + home
	}
	reason := fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, g.role.kind, g.role.name, s.Kind, subject)
	g.reason.Store(&reason)
	return reason
}

// missing says why a role has no rules, if it is not there.
func (r *role) missing() error {
	switch {
	case r.exists:
		return nil
	case r.kind == "Role":
		return apierrors.NewNotFound(rbacv1.Resource("role"), r.name) // the singular is upstream's
	case r.kind == "ClusterRole":
		return apierrors.NewNotFound(rbacv1.Resource("clusterrole"), r.name)
	}
	return unsupported(r.kind)
}

func unsupported(kind string) error { return fmt.Errorf("unsupported role reference kind: %q", kind) }
