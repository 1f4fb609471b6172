package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"skiff/internal/apiserver/authz"
)

// Allows reports whether one of the rules allows the request.
func Allows(rules []rbacv1.PolicyRule, a *authz.Attributes) bool {
	for i := range rules {
		if allows(&rules[i], a) {
			return true
		}
	}
	return false
}

func allows(r *rbacv1.PolicyRule, a *authz.Attributes) bool {
	if !contains(r.Verbs, a.Verb, rbacv1.VerbAll) {
		return false
	}
	if !a.Resource {
		return coversPath(r.NonResourceURLs, a.Path)
	}
	return contains(r.APIGroups, a.Group, rbacv1.APIGroupAll) && coversResource(r.Resources, a.Plural, a.Subresource) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

func contains(list []string, item, all string) bool {
	for _, s := range list {
		if s == item || s == all {
			return true
		}
	}
	return false
}

// coversResource reports whether a list with items like pods, pods/log, */scale or * covers a resource or subresource.
func coversResource(list []string, resource, subresource string) bool {
	for _, s := range list {
		switch {
		case s == rbacv1.ResourceAll:
			return true
		case subresource == "":
			if s == resource {
				return true
			}
		case strings.HasPrefix(s, "*/") && s[2:] == subresource, isPath(s, resource, subresource):
			return true
		}
	}
	return false
}

// isPath reports whether s is resource/subresource, without building that string.
func isPath(s, resource, subresource string) bool {
	return len(s) == len(resource)+1+len(subresource) && s[:len(resource)] == resource && s[len(resource)] == '/' && s[len(resource)+1:] == subresource
}

// coversPath reports whether a list of paths, which may end in a star, covers a path.
func coversPath(list []string, path string) bool {
	for _, s := range list {
		if s == path || strings.HasSuffix(s, "*") && strings.HasPrefix(path, strings.TrimRight(s, "*")) {
			return true
		}
	}
	return false
}
