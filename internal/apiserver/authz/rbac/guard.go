package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-helpers/auth/rbac/validation"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// Guard prevents privilege escalation. A role may be written by users who have all permissions of its rules, or the verb escalate on it; a
// binding by users who have all permissions of the role, or the verb bind on it.
type Guard struct {
	rbac    *Authorizer
	chain   authz.Authorizer
	objects objects.Reader
}

// NewGuard returns a guard. chain is the server's authorizer, which decides on the verbs escalate and bind.
func NewGuard(rbac *Authorizer, chain authz.Authorizer, read objects.Reader) *Guard {
	return &Guard{rbac, chain, read}
}

// Writer is the user of a write and the name in the request's path, which is empty for a create.
type Writer struct {
	User *authn.User
	Name string
}

// fullAuthority is required to set an aggregationRule, which can select any role.
var fullAuthority = []rbacv1.PolicyRule{
	{Verbs: []string{rbacv1.VerbAll}, APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}},
	{Verbs: []string{rbacv1.VerbAll}, NonResourceURLs: []string{rbacv1.NonResourceAll}},
}

// CheckRole refuses a Role or ClusterRole with permissions that its writer does not have. old is nil for a create.
func (g *Guard) CheckRole(ctx context.Context, w Writer, obj, old catalog.Object) error {
	resource, rules := ClusterRoles, []rbacv1.PolicyRule(nil)
	switch r := obj.(type) {
	case *rbacv1.ClusterRole:
		rules = r.Rules
	case *rbacv1.Role:
		resource, rules = Roles, r.Rules
	default:
		return fmt.Errorf("%T is no role", obj)
	}
	if isMaster(w.User) || g.authorized(ctx, w.User, "escalate", resource, obj.GetNamespace(), w.Name) || onlyForGarbageCollection(obj, old) {
		return nil
	}
	if err := g.checkHeld(w.User, resource, obj.GetNamespace(), rules); err != nil {
		return apierrors.NewForbidden(resource, obj.GetName(), err)
	}
	if (aggregates(obj) || aggregates(old)) && g.checkHeld(w.User, resource, "", fullAuthority) != nil {
		return apierrors.NewForbidden(resource, obj.GetName(), errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

// CheckBinding refuses a RoleBinding or ClusterRoleBinding of a role with permissions that its writer does not have. old is nil for a create.
func (g *Guard) CheckBinding(ctx context.Context, w Writer, obj, old catalog.Object) error {
	resource, ref := ClusterRoleBindings, rbacv1.RoleRef{}
	switch b := obj.(type) {
	case *rbacv1.ClusterRoleBinding:
		ref = b.RoleRef
	case *rbacv1.RoleBinding:
		resource, ref = RoleBindings, b.RoleRef
	default:
		return fmt.Errorf("%T is no binding", obj)
	}
	if isMaster(w.User) || onlyForGarbageCollection(obj, old) {
		return nil
	}
	namespace := obj.GetNamespace()
	of := map[string]schema.GroupResource{"Role": Roles, "ClusterRole": ClusterRoles}[ref.Kind]
	if of.Resource != "" && g.authorized(ctx, w.User, "bind", schema.GroupResource{Group: ref.APIGroup, Resource: of.Resource}, namespace, ref.Name) {
		return nil
	}
	rules, err := g.rulesOf(ctx, resource, ref, namespace)
	if err != nil {
		return err
	}
	if err := g.checkHeld(w.User, resource, namespace, rules); err != nil {
		return apierrors.NewForbidden(resource, obj.GetName(), err)
	}
	return nil
}

// rulesOf reads the rules of a role from the store, not the cache: a role and its binding are often created together. The NotFound error
// names, as upstream's does, the resource that is being written.
func (g *Guard) rulesOf(ctx context.Context, written schema.GroupResource, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	var obj catalog.Object
	var err error
	switch ref.Kind {
	case "Role":
		obj, err = g.objects.Fresh(ctx, Roles, namespace, ref.Name)
	case "ClusterRole":
		obj, err = g.objects.Fresh(ctx, ClusterRoles, "", ref.Name)
	default:
		return nil, unsupported(ref.Kind)
	}
	switch role := obj.(type) {
	case *rbacv1.Role:
		return role.Rules, nil
	case *rbacv1.ClusterRole:
		return role.Rules, nil
	}
	if apierrors.IsNotFound(err) {
		err = apierrors.NewNotFound(written, ref.Name)
	}
	return nil, err
}

// authorized reports whether the server's authorizer allows the user the verb.
func (g *Guard) authorized(ctx context.Context, user *authn.User, verb string, resource schema.GroupResource, namespace, name string) bool {
	if user == nil {
		return false
	}
	decision, _, _ := g.chain.Authorize(ctx, &authz.Attributes{User: user, Verb: verb, Resource: true, Group: resource.Group, Version: "*",
		Plural: resource.Resource, Namespace: namespace, Name: name})
	return decision == authz.Allow
}

// checkHeld returns an error that lists the permissions of the rules that the user does not have.
func (g *Guard) checkHeld(user *authn.User, written schema.GroupResource, namespace string, rules []rbacv1.PolicyRule) error {
	if user == nil {
		return errors.New("no user on context")
	}
	var held []rbacv1.PolicyRule
	var unresolved []error
	for _, r := range g.rbac.rolesOf(user, namespace) {
		held = append(held, r.rules...)
		if !r.exists {
			unresolved = append(unresolved, apierrors.NewNotFound(written, r.name))
		}
	}
	covered, missing := validation.Covers(held, rules)
	if covered {
		return nil
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		user.Username, user.Groups, strings.Join(describe(missing), "\n"))
	if len(unresolved) > 0 {
		text += fmt.Sprintf("; resolution errors: [%v]", utilerrors.NewAggregate(unresolved))
	}
	return errors.New(text)
}

func isMaster(user *authn.User) bool {
	return user != nil && slices.Contains(user.Groups, authn.SystemMasters)
}

func aggregates(obj catalog.Object) bool {
	r, ok := obj.(*rbacv1.ClusterRole)
	return ok && r.AggregationRule != nil && len(r.AggregationRule.ClusterRoleSelectors) > 0
}

// onlyForGarbageCollection reports whether an update changes only what the garbage collector changes to delete the object.
func onlyForGarbageCollection(obj, old catalog.Object) bool {
	if old == nil {
		return false
	}
	after := obj.DeepCopyObject().(catalog.Object)
	after.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind()) // only objects from clients have it set
	after.SetOwnerReferences(old.GetOwnerReferences())
	after.SetFinalizers(old.GetFinalizers())
	after.SetSelfLink(old.GetSelfLink())
	after.SetManagedFields(old.GetManagedFields())
	return equality.Semantic.DeepEqual(after, old)
}

// describe formats rules of one verb each, as Covers returns them, with the verbs of a resource combined.
func describe(missing []rbacv1.PolicyRule) []string {
	verbs := map[string][]string{} // by the rest of the rule
	var lines []string
	for _, r := range missing {
		var parts []string
		for _, part := range []struct {
			name   string
			values []string
		}{{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs}, {"ResourceNames", r.ResourceNames}} {
			if len(part.values) > 0 {
				parts = append(parts, fmt.Sprintf("%s:%q", part.name, part.values))
			}
		}
		what := strings.Join(parts, ", ")
		if len(r.NonResourceURLs) > 0 { // each verb of a path has a line of its own
			lines = append(lines, fmt.Sprintf("{%s, Verbs:%q}", what, r.Verbs))
			continue
		}
		verbs[what] = append(verbs[what], r.Verbs...)
	}
	for what, list := range verbs {
		lines = append(lines, fmt.Sprintf("{%s, Verbs:%q}", what, list))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
