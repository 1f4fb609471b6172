package match_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission/webhook/match"
)

// The cases are those of upstream's tables of rules: for each part of a rule, what it selects and what it does not.
func TestRule(t *testing.T) {
	type list = []string
	type operations = []admissionregistrationv1.OperationType
	scoped := func(s admissionregistrationv1.ScopeType) *admissionregistrationv1.ScopeType { return &s }
	target := func(operation, group, version, resource, subresource string) match.Target {
		return match.Target{Operation: operation, Resource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, Subresource: subresource, Namespaced: true}
	}
	cluster := match.Target{Operation: "CREATE", Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}}
	pods := target("CREATE", "", "v1", "pods", "")
	anything := admissionregistrationv1.RuleWithOperations{Operations: operations{"*"}, Rule: admissionregistrationv1.Rule{APIGroups: list{"*"}, APIVersions: list{"*"}, Resources: list{"*", "*/*"}}}
	with := func(change func(*admissionregistrationv1.RuleWithOperations)) admissionregistrationv1.RuleWithOperations {
		r := *anything.DeepCopy()
		change(&r)
		return r
	}
	groups := func(g ...string) admissionregistrationv1.RuleWithOperations {
		return with(func(r *admissionregistrationv1.RuleWithOperations) { r.APIGroups = g })
	}
	versions := func(v ...string) admissionregistrationv1.RuleWithOperations {
		return with(func(r *admissionregistrationv1.RuleWithOperations) { r.APIVersions = v })
	}
	resources := func(s ...string) admissionregistrationv1.RuleWithOperations {
		return with(func(r *admissionregistrationv1.RuleWithOperations) { r.Resources = s })
	}
	ops := func(o ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
		return with(func(r *admissionregistrationv1.RuleWithOperations) { r.Operations = o })
	}
	scope := func(s admissionregistrationv1.ScopeType) admissionregistrationv1.RuleWithOperations {
		return with(func(r *admissionregistrationv1.RuleWithOperations) { r.Scope = scoped(s) })
	}
	for _, c := range []struct {
		name    string
		rule    admissionregistrationv1.RuleWithOperations
		yes, no []match.Target
	}{
		{"no rule at all", admissionregistrationv1.RuleWithOperations{}, nil, []match.Target{pods}},
		{"any group", groups("*"), []match.Target{pods, target("CREATE", "g", "v", "r", "")}, nil},
		{"one group", groups("name", "prefix"), []match.Target{target("CREATE", "name", "v", "r", "")}, []match.Target{target("CREATE", "prefi", "v", "r", ""), target("CREATE", "name-long", "v", "r", ""), pods}},
		{"the core group", groups(""), []match.Target{pods}, []match.Target{target("CREATE", "apps", "v1", "pods", "")}},
		{"any version", versions("*"), []match.Target{target("CREATE", "g", "v7", "r", "")}, nil},
		{"versions", versions("v1", "v1beta1"), []match.Target{pods, target("CREATE", "", "v1beta1", "pods", "")}, []match.Target{target("CREATE", "", "v1beta2", "pods", ""), target("CREATE", "", "v", "pods", "")}},
		{"any operation", ops("*"), []match.Target{pods, target("UPDATE", "", "v1", "pods", ""), target("DELETE", "", "v1", "pods", ""), target("CONNECT", "", "v1", "pods", "")}, nil},
		{"create", ops("CREATE"), []match.Target{pods}, []match.Target{target("UPDATE", "", "v1", "pods", ""), target("DELETE", "", "v1", "pods", ""), target("CONNECT", "", "v1", "pods", "")}},
		{"update and delete", ops("UPDATE", "DELETE"), []match.Target{target("UPDATE", "", "v1", "pods", ""), target("DELETE", "", "v1", "pods", "")}, []match.Target{pods, target("CONNECT", "", "v1", "pods", "")}},
		{"connect", ops("CONNECT"), []match.Target{target("CONNECT", "", "v1", "pods", "exec")}, []match.Target{pods}},
		{"resources without subresources", resources("*"), []match.Target{pods, target("CREATE", "g", "v", "r", "")}, []match.Target{target("CREATE", "", "v1", "pods", "status")}},
		{"a resource", resources("pods"), []match.Target{pods}, []match.Target{target("CREATE", "", "v1", "pods", "exec"), target("CREATE", "", "v1", "pod", "")}},
		{"a resource and its subresources", resources("pods/*"), []match.Target{pods, target("CREATE", "", "v1", "pods", "exec")}, []match.Target{target("CREATE", "", "v1", "services", "proxy")}},
		{"one subresource", resources("pods/exec"), []match.Target{target("CONNECT", "", "v1", "pods", "exec")}, []match.Target{pods, target("CONNECT", "", "v1", "pods", "attach")}},
		{"a subresource of anything", resources("*/status"), []match.Target{target("UPDATE", "", "v1", "pods", "status"), target("UPDATE", "apps", "v1", "deployments", "status")}, []match.Target{pods, target("UPDATE", "", "v1", "pods", "scale")}},
		{"everything", resources("*/*"), []match.Target{pods, target("UPDATE", "", "v1", "pods", "status")}, nil},
		{"several", resources("a", "b/c"), []match.Target{target("CREATE", "g", "v", "a", ""), target("CREATE", "g", "v", "b", "c")}, []match.Target{target("CREATE", "g", "v", "b", ""), target("CREATE", "g", "v", "a", "c")}},
		{"any scope", scope("*"), []match.Target{pods, cluster}, nil},
		{"in namespaces", scope("Namespaced"), []match.Target{pods}, []match.Target{cluster}},
		{"in no namespace", scope("Cluster"), []match.Target{cluster}, []match.Target{pods}},
		{"an unknown scope", scope("Galaxy"), nil, []match.Target{pods, cluster}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, target := range c.yes {
				if !match.Rules([]admissionregistrationv1.RuleWithOperations{{}, c.rule}, target) {
					t.Errorf("%+v is not selected", target)
				}
			}
			for _, target := range c.no {
				if match.Rules([]admissionregistrationv1.RuleWithOperations{{}, c.rule}, target) {
					t.Errorf("%+v is selected", target)
				}
			}
		})
	}
}

func TestExempt(t *testing.T) {
	const admission = "admissionregistration.k8s.io"
	for kind, want := range map[schema.GroupVersionKind]bool{
		{Group: admission, Version: "v1", Kind: "MutatingWebhookConfiguration"}:          true,
		{Group: admission, Version: "v1", Kind: "ValidatingWebhookConfiguration"}:        true,
		{Group: admission, Version: "v1", Kind: "ValidatingAdmissionPolicy"}:             true,
		{Group: admission, Version: "v1beta1", Kind: "ValidatingAdmissionPolicyBinding"}: true,
		{Group: admission, Version: "v1", Kind: "MutatingAdmissionPolicy"}:               true,
		{Group: admission, Version: "v1alpha1", Kind: "MutatingAdmissionPolicyBinding"}:  true,
		{Group: "example.com", Version: "v1", Kind: "MutatingWebhookConfiguration"}:      false,
		{Group: admission, Version: "v1", Kind: "Other"}:                                 false,
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}:         false,
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: false,
	} {
		if match.Exempt(kind) != want {
			t.Errorf("%v: want %t", kind, want)
		}
	}
	for resource, want := range map[schema.GroupResource]bool{
		{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
		{Resource: "tokenreviews"}:                        false,
		{Group: "authorization.k8s.io", Resource: "else"}: false,
	} {
		if match.Excluded(resource) != want {
			t.Errorf("%v: want %t", resource, want)
		}
	}
}
