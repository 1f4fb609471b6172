package bootstrap

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Common lists of verbs.
const (
	read       = "get list watch"
	write      = "create update patch delete deletecollection"
	readWrite  = read + " " + write
	readUpdate = read + " update patch"
)

// allow returns a rule about resources. Each argument is a space-separated list; "core" is the group that has no name.
func allow(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: words(verbs), APIGroups: words(groups), Resources: words(resources)}
	for i, group := range r.APIGroups {
		if group == "core" {
			r.APIGroups[i] = ""
		}
	}
	slices.Sort(r.APIGroups)
	if len(names) > 0 {
		r.ResourceNames = slices.Sorted(slices.Values(names))
	}
	return r
}

// allowPaths returns a rule about paths that are no resources.
func allowPaths(verbs, paths string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: words(verbs), NonResourceURLs: words(paths)}
}

// writeEvents returns the rule to write events, which nearly every component has.
func writeEvents() rbacv1.PolicyRule {
	return allow("create update patch", "core events.k8s.io", "events")
}

func words(s string) []string { return slices.Sorted(strings.FieldsSeq(s)) }

// bootstrapping is the label of default roles and bindings.
const bootstrapping = "kubernetes.io/bootstrapping"

// meta returns the metadata of a default object: the bootstrapping label, and the annotation that lets Reconcile update it.
func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels:      map[string]string{bootstrapping: "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"}}
}

func role(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: meta("", name), Rules: rules}
}

const (
	aggregateTo      = "rbac.authorization.k8s.io/aggregate-to-"
	controllerPrefix = "system:controller:"
)

// joins labels the role so that its rules are aggregated into another role.
func joins(other string, r *rbacv1.ClusterRole) *rbacv1.ClusterRole {
	r.Labels[aggregateTo+other] = "true"
	return r
}

// aggregating returns a role that aggregates the rules of the roles that join it.
func aggregating(name string) *rbacv1.ClusterRole {
	r := role(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregateTo + name: "true"}}}}
	return r
}

// controller returns the role of a controller, which has a service account of the same name in kube-system.
func controller(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return role(controllerPrefix+name, rules...)
}

func namespaced(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: meta(namespace, name), Rules: rules}
}

// bind returns a binding of a cluster role to subjects.
func bind(role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", role), RoleRef: ref("ClusterRole", role), Subjects: subjects}
}

// bindIn returns a binding of a role of a namespace to subjects.
func bindIn(namespace, name, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: meta(namespace, name), RoleRef: ref("Role", role), Subjects: subjects}
}

func ref(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

// account returns the subject of a service account in kube-system.
func account(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: name}
}
