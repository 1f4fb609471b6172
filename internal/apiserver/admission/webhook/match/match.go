package match

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Target is what a request is for.
type Target struct {
	Operation   string
	Resource    schema.GroupVersionResource
	Subresource string
	Namespaced  bool // whether the resource is in a namespace; namespaces themselves are not
}

// Rules reports whether a request is for what one of the rules selects.
func Rules(rules []admissionregistrationv1.RuleWithOperations, t Target) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool { return Rule(&r, t) })
}

// Rule reports whether a request is for what the rule selects.
func Rule(r *admissionregistrationv1.RuleWithOperations, t Target) bool {
	return scope(r.Scope, t.Namespaced) && oneOf(r.Operations, admissionregistrationv1.OperationType(t.Operation)) &&
		oneOf(r.APIGroups, t.Resource.Group) && oneOf(r.APIVersions, t.Resource.Version) && resource(r.Resources, t.Resource.Resource, t.Subresource)
}

func scope(wanted *admissionregistrationv1.ScopeType, namespaced bool) bool {
	if wanted == nil {
		return true
	}
	switch *wanted {
	case admissionregistrationv1.AllScopes:
		return true
	case admissionregistrationv1.NamespacedScope:
		return namespaced
	case admissionregistrationv1.ClusterScope:
		return !namespaced
	}
	return false
}

func oneOf[S ~string](items []S, asked S) bool {
	return slices.Contains(items, "*") || slices.Contains(items, asked)
}

// resource matches RESOURCE or RESOURCE/SUBRESOURCE, either of which may be a wildcard: "pods" is not its subresources, and "*" is no subresource at all.
func resource(patterns []string, plural, subresource string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		r, s, _ := strings.Cut(pattern, "/")
		return (r == "*" || r == plural) && (s == "*" || s == subresource)
	})
}

// Exempt reports whether webhooks and policies of the API are never asked about objects of a kind: those that configure admission itself, so that they can
// always be repaired.
func Exempt(kind schema.GroupVersionKind) bool {
	if kind.Group != admissionregistrationv1.GroupName {
		return false
	}
	switch kind.Kind {
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		return true
	}
	return false
}

// Excluded reports whether no webhook or policy is ever asked about a resource: reviews of identity and access, on which admission itself depends.
func Excluded(resource schema.GroupResource) bool {
	switch resource.Group {
	case "authentication.k8s.io":
		return resource.Resource == "tokenreviews" || resource.Resource == "selfsubjectreviews"
	case "authorization.k8s.io":
		switch resource.Resource {
		case "subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews":
			return true
		}
	}
	return false
}
