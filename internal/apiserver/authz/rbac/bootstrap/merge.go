package bootstrap

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// merge adds to have what it lacks of want, and reports whether it changed have.
func merge(want, have catalog.Object) bool {
	labels, newLabels := mergeMap(want.GetLabels(), have.GetLabels())
	have.SetLabels(labels)
	annotations, newAnnotations := mergeMap(want.GetAnnotations(), have.GetAnnotations())
	have.SetAnnotations(annotations)
	changed := newLabels || newAnnotations
	switch have := have.(type) {
	case *rbacv1.ClusterRole:
		want := want.(*rbacv1.ClusterRole)
		changed = mergeRules(want.Rules, &have.Rules) || changed
		changed = mergeAggregation(want.AggregationRule, &have.AggregationRule) || changed
	case *rbacv1.Role:
		changed = mergeRules(want.(*rbacv1.Role).Rules, &have.Rules) || changed
	case *rbacv1.ClusterRoleBinding:
		changed = mergeSubjects(want.(*rbacv1.ClusterRoleBinding).Subjects, &have.Subjects) || changed
	case *rbacv1.RoleBinding:
		changed = mergeSubjects(want.(*rbacv1.RoleBinding).Subjects, &have.Subjects) || changed
	}
	return changed
}

// mergeMap adds the missing keys; existing keys keep their values.
func mergeMap(want, have map[string]string) (merged map[string]string, changed bool) {
	merged = maps.Clone(have)
	for key, value := range want {
		if _, exists := have[key]; exists {
			continue
		}
		if merged == nil {
			merged = map[string]string{}
		}
		merged[key], changed = value, true
	}
	return merged, changed
}

func mergeRules(want []rbacv1.PolicyRule, have *[]rbacv1.PolicyRule) bool {
	if rbac.SameRules(want, *have) { // nearly always; Covers is far slower
		return false
	}
	_, missing := validation.Covers(*have, want)
	*have = append(*have, missing...)
	return len(missing) > 0
}

func mergeAggregation(want *rbacv1.AggregationRule, have **rbacv1.AggregationRule) bool {
	if want == nil {
		changed := *have != nil // the role must not be aggregated
		*have = nil
		return changed
	}
	if *have == nil {
		*have = &rbacv1.AggregationRule{}
	}
	changed := false
	for _, selector := range want.ClusterRoleSelectors {
		same := func(other metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(selector, other) }
		if !slices.ContainsFunc((*have).ClusterRoleSelectors, same) {
			(*have).ClusterRoleSelectors, changed = append((*have).ClusterRoleSelectors, selector), true
		}
	}
	return changed
}

func mergeSubjects(want []rbacv1.Subject, have *[]rbacv1.Subject) bool {
	changed := false
	for _, subject := range want {
		if !slices.Contains(*have, subject) {
			*have, changed = append(*have, subject), true
		}
	}
	return changed
}

// otherRole reports whether two bindings refer to different roles.
func otherRole(want, have catalog.Object) bool {
	switch have := have.(type) {
	case *rbacv1.ClusterRoleBinding:
		return have.RoleRef != want.(*rbacv1.ClusterRoleBinding).RoleRef
	case *rbacv1.RoleBinding:
		return have.RoleRef != want.(*rbacv1.RoleBinding).RoleRef
	}
	return false
}

// predecessor returns the initial state of an object in a cluster whose data come from an older Kubernetes that had another object in its
// place, so that an administrator's changes to that are kept: before 1.9 admin, edit and view were not aggregated, before 1.14
// system:discovery was bound to unauthenticated users too.
func predecessor(want catalog.Object, read objects.Reader) catalog.Object {
	switch want := want.(type) {
	case *rbacv1.ClusterRole:
		name, ok := map[string]string{"system:aggregate-to-admin": "admin", "system:aggregate-to-edit": "edit", "system:aggregate-to-view": "view"}[want.Name]
		if !ok {
			return nil
		}
		if old, ok := read.Get(rbac.ClusterRoles, "", name).(*rbacv1.ClusterRole); ok && old.AggregationRule == nil {
			old = old.DeepCopy()
			return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: want.Name, Labels: old.Labels, Annotations: old.Annotations}, Rules: old.Rules}
		}
	case *rbacv1.ClusterRoleBinding:
		if want.Name != publicInfo {
			return nil
		}
		if old, ok := read.Get(rbac.ClusterRoleBindings, "", discovery).(*rbacv1.ClusterRoleBinding); ok {
			old = old.DeepCopy()
			return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: want.Name, Labels: old.Labels, Annotations: old.Annotations},
				RoleRef: want.RoleRef, Subjects: old.Subjects}
		}
	}
	return nil
}
