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

// index holds the roles that are bound to each subject. Its size is that of the roles and bindings.
type index struct {
	mu     sync.RWMutex
	roles  map[roleKey]*role
	grants map[subjectKey][]*grant // sorted by the name of the binding
}

// roleKey identifies a role. A ClusterRole has no namespace.
type roleKey struct{ kind, namespace, name string }

// role is a role that exists, or that a binding refers to.
type role struct {
	roleKey
	exists   bool
	rules    []rbacv1.PolicyRule
	bindings int // number of bindings that refer to the role
}

// subjectKey identifies a subject, and the namespace its bindings apply to, empty for ClusterRoleBindings.
type subjectKey struct {
	namespace string
	group     bool // the name of a group; otherwise of a user, which includes service accounts
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
	subject int                    // index of the first of the binding's subjects with the subjectKey
	reason  atomic.Pointer[string] // cache of describe
}

// newIndex returns an index that is kept up to date by the events of the four resources.
func newIndex(reader objects.Reader) *index {
	ix := &index{roles: map[roleKey]*role{}, grants: map[subjectKey][]*grant{}}
	reader.Follow(ClusterRoles, locked(ix, func(r *rbacv1.ClusterRole, exists bool) {
		ix.setRole(roleKey{"ClusterRole", "", r.Name}, r.Rules, exists)
	}))
	reader.Follow(Roles, locked(ix, func(r *rbacv1.Role, exists bool) {
		ix.setRole(roleKey{"Role", r.Namespace, r.Name}, r.Rules, exists)
	}))
	reader.Follow(ClusterRoleBindings, locked(ix, func(b *rbacv1.ClusterRoleBinding, exists bool) {
		ix.setBinding("", b.Name, b.RoleRef, b.Subjects, exists)
	}))
	reader.Follow(RoleBindings, locked(ix, func(b *rbacv1.RoleBinding, exists bool) {
		ix.setBinding(b.Namespace, b.Name, b.RoleRef, b.Subjects, exists)
	}))
	return ix
}

// locked calls set for the object before and after a change under one lock, so that no decision sees the state between.
func locked[T any](ix *index, set func(obj T, exists bool)) func(before, after catalog.Object) {
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

func (ix *index) setRole(key roleKey, rules []rbacv1.PolicyRule, exists bool) {
	r := ix.role(key)
	if r.exists = exists; !exists {
		rules = nil
	}
	r.rules = rules
	ix.removeIfUnused(r)
}

func (ix *index) role(key roleKey) *role {
	r := ix.roles[key]
	if r == nil {
		r = &role{roleKey: key}
		ix.roles[key] = r
	}
	return r
}

// removeIfUnused removes a role that neither exists nor has bindings.
func (ix *index) removeIfUnused(r *role) {
	if !r.exists && r.bindings == 0 {
		delete(ix.roles, r.roleKey)
	}
}

func (ix *index) setBinding(namespace, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject, exists bool) {
	key := roleKey{ref.Kind, "", ref.Name}
	if ref.Kind == "Role" {
		key.namespace = namespace
	}
	r := ix.role(key)
	if exists {
		r.bindings++
		ix.add(&binding{namespace, name, r, subjects})
	} else {
		r.bindings--
		ix.remove(namespace, name, subjects)
	}
	ix.removeIfUnused(r)
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

// keyOf returns the key of a subject. A service account without a namespace is in the binding's namespace.
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

// grantsTo iterates over the grants to a user, cluster-wide and in a namespace. A binding that names both the user and a group of the user
// occurs more than once.
func (ix *index) grantsTo(user *authenticationv1.UserInfo, namespace string) iter.Seq[*grant] {
	return func(yield func(*grant) bool) {
		if ix.grantsIn("", user, yield) && namespace != "" {
			ix.grantsIn(namespace, user, yield)
		}
	}
}

func (ix *index) grantsIn(namespace string, user *authenticationv1.UserInfo, yield func(*grant) bool) bool {
	for i := -1; i < len(user.Groups); i++ {
		for _, g := range ix.grants[userKey(user, i, namespace)] {
			if !yield(g) {
				return false
			}
		}
	}
	return true
}

// userKey returns the key of the user if i is negative, else of the user's i-th group.
func userKey(user *authenticationv1.UserInfo, i int, namespace string) subjectKey {
	if i < 0 {
		return subjectKey{namespace, false, user.Username}
	}
	return subjectKey{namespace, true, user.Groups[i]}
}

// first returns the grant of the same binding to the first of its subjects that matches the user.
func (ix *index) first(g *grant, user *authenticationv1.UserInfo) *grant {
	for i := -1; i < len(user.Groups); i++ {
		list := ix.grants[userKey(user, i, g.namespace)]
		if at, found := slices.BinarySearchFunc(list, g.name, byName); found && list[at].subject < g.subject {
			g = list[at]
		}
	}
	return g
}

// describe returns the reason of a decision by the grant. It formats the text once.
func (g *grant) describe() string {
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

// missing returns the NotFound error of a role that does not exist, else nil.
func (r *role) missing() error {
	switch {
	case r.exists:
		return nil
	case r.kind == "Role":
		return apierrors.NewNotFound(rbacv1.Resource("role"), r.name) // upstream's text has the singular
	case r.kind == "ClusterRole":
		return apierrors.NewNotFound(rbacv1.Resource("clusterrole"), r.name)
	}
	return unsupported(r.kind)
}

func unsupported(kind string) error { return fmt.Errorf("unsupported role reference kind: %q", kind) }
