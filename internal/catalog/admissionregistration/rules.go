package admissionregistration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

func defaultMatchResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	fill(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	fill(&m.NamespaceSelector, metav1.LabelSelector{})
	fill(&m.ObjectSelector, metav1.LabelSelector{})
	for _, list := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range list {
			fill(&list[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func validateMatchResources(p *check.Part, m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	check.OneOf(p, "matchPolicy", *m.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
	p.StrictSelector("namespaceSelector", m.NamespaceSelector)
	p.StrictSelector("objectSelector", m.ObjectSelector)
	for i := range m.ResourceRules {
		validateNamedRule(p.Item("resourceRules", i), &m.ResourceRules[i])
	}
	for i := range m.ExcludeResourceRules {
		validateNamedRule(p.Item("excludeResourceRules", i), &m.ExcludeResourceRules[i])
	}
}

func validateNamedRule(p *check.Part, r *admissionregistrationv1.NamedRuleWithOperations) {
	for i, name := range r.ResourceNames {
		item := p.Item("resourceNames", i)
		item.Format("", name, content.IsPathSegmentName)
		if slices.Contains(r.ResourceNames[:i], name) {
			item.Add(field.Duplicate(item.Path(), name))
		}
	}
	validateRule(p, &r.RuleWithOperations)
}

// validateRule validates a rule that selects the requests of a webhook or policy.
func validateRule(p *check.Part, r *admissionregistrationv1.RuleWithOperations) {
	p.Present("operations", len(r.Operations) > 0, "")
	alone(p, "operations", r.Operations, "operations")
	for i, operation := range r.Operations {
		check.OneOf(p.Item("operations", i), "", operation, admissionregistrationv1.OperationAll, admissionregistrationv1.Connect,
			admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update)
	}
	p.Present("apiGroups", len(r.APIGroups) > 0, "")
	alone(p, "apiGroups", r.APIGroups, "API groups")
	p.Present("apiVersions", len(r.APIVersions) > 0, "")
	alone(p, "apiVersions", r.APIVersions, "API versions")
	for i, version := range r.APIVersions {
		p.Item("apiVersions", i).Present("", version != "", "")
	}
	validateResources(p, r.Resources)
	if r.Scope != nil {
		check.OneOf(p, "scope", *r.Scope, admissionregistrationv1.AllScopes,
			admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)
	}
}

// alone adds an error for a wildcard that is not the only item.
func alone[S ~string](p *check.Part, name string, list []S, what string) {
	if len(list) > 1 && slices.Contains(list, "*") {
		p.Invalid(name, list, "if '*' is present, must not specify other "+what)
	}
}

// validateResources validates a list of resources and subresources, in which a wildcard must not include other items.
func validateResources(p *check.Part, resources []string) {
	p.Present("resources", len(resources) > 0, "")
	all, bare := false, false
	wildSubs, wildResources := sets.New[string](), sets.New[string]() // of which resources, with which subresources
	for i, name := range resources {
		item := p.Item("resources", i)
		if name == "" {
			item.Required("", "")
			continue
		}
		resource, sub, ok := strings.Cut(name, "/")
		if !ok {
			all = all || name == "*"
			bare = name != "*"
			continue
		}
		if wildSubs.Has(resource) {
			item.Invalid("", name, "if '"+resource+"/*' is present, must not specify "+name)
		}
		if wildResources.Has(sub) {
			item.Invalid("", name, "if '*/"+sub+"' is present, must not specify "+name)
		}
		if sub == "*" {
			wildSubs.Insert(resource)
		}
		if resource == "*" {
			wildResources.Insert(sub)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		p.Invalid("resources", resources, "if '*/*' is present, must not specify other resources")
	}
	if all && bare {
		p.Invalid("resources", resources, "if '*' is present, must not specify other resources without subresources")
	}
}

const maxMatchConditions = 64

// validateMatchConditions validates match conditions. compile adds an error if an expression does not compile; nil compiles none.
func validateMatchConditions(p *check.Part, conditions []admissionregistrationv1.MatchCondition, compile func(item *check.Part, expression string)) {
	if len(conditions) > maxMatchConditions {
		p.Add(field.TooMany(p.Path("matchConditions"), len(conditions), maxMatchConditions))
	}
	seen := sets.New[string]()
	for i, c := range conditions {
		item := p.Item("matchConditions", i)
		if strings.TrimSpace(c.Expression) == "" {
			item.Required("expression", "")
		} else if compile != nil {
			compile(item, strings.TrimSpace(c.Expression))
		}
		if c.Name == "" {
			item.Required("name", "")
			continue
		}
		item.Format("name", c.Name, validation.IsQualifiedName)
		if seen.Has(c.Name) {
			item.Add(field.Duplicate(item.Path("name"), c.Name))
		}
		seen.Insert(c.Name)
	}
}
