package rbac

import (
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

var RoleBinding = catalog.Resource[rbacv1.RoleBinding]{
	Group: group, Version: "v1", Kind: "RoleBinding", Plural: "rolebindings", Namespaced: true,
	Name:                anyName,
	CreateOnUpdate:      true,
	UnconditionalUpdate: true,
	Default:             func(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
	Validate: func(b *rbacv1.RoleBinding) field.ErrorList {
		return validateBinding(&b.RoleRef, b.Subjects, nil, true).Errors()
	},
	ValidateUpdate: func(new, old *rbacv1.RoleBinding) field.ErrorList {
		return validateBinding(&new.RoleRef, new.Subjects, &old.RoleRef, true).Errors()
	},
	Columns: bindingColumns("roleBinding", rbacv1beta1.RoleBinding{}.SwaggerDoc(), func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
		return b.RoleRef, b.Subjects
	}),
	Complete: true,
}

var ClusterRoleBinding = catalog.Resource[rbacv1.ClusterRoleBinding]{
	Group: group, Version: "v1", Kind: "ClusterRoleBinding", Plural: "clusterrolebindings",
	Name:                anyName,
	CreateOnUpdate:      true,
	UnconditionalUpdate: true,
	Default:             func(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
	Validate: func(b *rbacv1.ClusterRoleBinding) field.ErrorList {
		return validateBinding(&b.RoleRef, b.Subjects, nil, false).Errors()
	},
	ValidateUpdate: func(new, old *rbacv1.ClusterRoleBinding) field.ErrorList {
		return validateBinding(&new.RoleRef, new.Subjects, &old.RoleRef, false).Errors()
	},
	Columns: bindingColumns("clusterRoleBinding", rbacv1beta1.ClusterRoleBinding{}.SwaggerDoc(), func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
		return b.RoleRef, b.Subjects
	}),
	Complete: true,
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = group
	}
	for i := range subjects {
		s := &subjects[i]
		if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = group
		}
	}
}

func validateBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject, old *rbacv1.RoleRef, namespaced bool) *check.Part {
	binding := check.At(nil)
	role := binding.Child("roleRef")
	check.OneOf(role, "apiGroup", ref.APIGroup, group)
	if namespaced {
		check.OneOf(role, "kind", ref.Kind, "Role", "ClusterRole")
	} else {
		check.OneOf(role, "kind", ref.Kind, "ClusterRole")
	}
	if ref.Name != "" {
		role.Format("name", ref.Name, content.IsPathSegmentName)
	} else if old != nil {
		role.Required("name", "")
	}
	for i := range subjects {
		validateSubject(binding.Item("subjects", i), &subjects[i], namespaced)
	}
	if old != nil {
		binding.Immutable("roleRef", *ref, *old)
	} else {
		role.Later().Present("name", ref.Name != "", "")
	}
	return binding
}

func validateSubject(p *check.Part, s *rbacv1.Subject, namespaced bool) {
	p.Later().Present("name", s.Name != "", "")
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			p.Format("name", s.Name, validation.IsDNS1123Subdomain)
		}
		check.OneOf(p, "apiGroup", s.APIGroup, "")
		p.Present("namespace", namespaced || s.Namespace != "", "")
	case rbacv1.UserKind, rbacv1.GroupKind:
		check.OneOf(p, "apiGroup", s.APIGroup, group)
	default:
		check.OneOf(p, "kind", s.Kind, rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)
	}
}

func bindingColumns[T any](kind string, doc map[string]string, of func(*T) (rbacv1.RoleRef, []rbacv1.Subject)) []catalog.Column[T] {
	named := func(column, subjectKind string) catalog.Column[T] {
		return catalog.Column[T]{Name: column, Priority: 1, Description: column + " in the " + kind,
			Cell: func(b *T, _ time.Time) any {
				_, subjects := of(b)
				return subjectNames(subjects, subjectKind)
			}}
	}
	return []catalog.Column[T]{
		catalog.NameColumn[T](),
		{Name: "Role", Description: doc["roleRef"], Cell: func(b *T, _ time.Time) any {
			ref, _ := of(b)
			return ref.Kind + "/" + ref.Name
		}},
		catalog.AgeColumn[T](),
		named("Users", rbacv1.UserKind),
		named("Groups", rbacv1.GroupKind),
		named("ServiceAccounts", rbacv1.ServiceAccountKind),
	}
}

func subjectNames(subjects []rbacv1.Subject, kind string) string {
	var names []string
	for i := range subjects {
		s := &subjects[i]
		switch {
		case s.Kind != kind:
		case kind == rbacv1.ServiceAccountKind:
			names = append(names, s.Namespace+"/"+s.Name)
		default:
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}
