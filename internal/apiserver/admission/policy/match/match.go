package match

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/apiserver/admission"
	"skiff/internal/catalog"
)

// Criteria are match resources whose selectors are parsed.
type Criteria struct {
	namespaces, objects selector
	rules, excluded     []rule
	equivalent          bool
}

type selector struct {
	labels.Selector
	err error
}

func parse(s *metav1.LabelSelector, name string) selector {
	if s == nil {
		return selector{err: fmt.Errorf("a nil %s selector was passed, please ensure selectors are initialized properly", name)}
	}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		err = apierrors.NewInternalError(err)
	}
	return selector{parsed, err}
}

// New returns the criteria of match resources; nil, which matches everything, if there are none.
func New(m *admissionregistrationv1.MatchResources) *Criteria {
	if m == nil {
		return nil
	}
	return &Criteria{namespaces: parse(m.NamespaceSelector, "namespace"), objects: parse(m.ObjectSelector, "object"),
		rules: newRules(m.ResourceRules), excluded: newRules(m.ExcludeResourceRules),
		equivalent: m.MatchPolicy != nil && *m.MatchPolicy == admissionregistrationv1.Equivalent}
}

// MayMatch reports whether the criteria can match a write to a resource or subresource, whatever the object is. It ignores scopes, names and selectors.
func (c *Criteria) MayMatch(info *catalog.Info, equivalent []*catalog.Info, subresource string, operation admission.Operation) bool {
	if c == nil || len(c.rules) == 0 {
		return true
	}
	for i := range c.rules {
		r := &c.rules[i]
		if !r.operation(operation) {
			continue
		}
		if r.resource(info, subresource) || c.equivalent && slices.ContainsFunc(equivalent, func(e *catalog.Info) bool { return r.resource(e, subresource) }) {
			return true
		}
	}
	return false
}

// Match returns the version of the resource in which the criteria match the write; nil if they do not. An error is returned only for a write that the
// rules match.
func (c *Criteria) Match(s *Subject) (*catalog.Info, error) {
	if c == nil {
		return s.Info, nil
	}
	inNamespace, namespaceErr := c.matchNamespace(s)
	if !inNamespace && namespaceErr == nil {
		return nil, nil
	}
	selected, objectErr := c.matchObject(s)
	if !selected && objectErr == nil {
		return nil, nil
	}
	if c.anyRule(c.excluded, s) != nil {
		return nil, nil
	}
	matched := s.Info
	if len(c.rules) > 0 {
		matched = c.anyRule(c.rules, s)
	}
	switch {
	case matched == nil:
		return nil, nil
	case namespaceErr != nil:
		return nil, namespaceErr
	case objectErr != nil:
		return nil, objectErr
	}
	return matched, nil
}

// matchNamespace reports whether the namespace selector matches. It always matches what is in no namespace.
func (c *Criteria) matchNamespace(s *Subject) (bool, error) {
	if c.namespaces.err != nil {
		return false, c.namespaces.err
	}
	if s.In == "" && s.Info.GVR.Resource != "namespaces" || c.namespaces.Empty() {
		return true, nil
	}
	found, err := s.namespaceLabels()
	switch {
	case err == nil:
		return c.namespaces.Matches(labels.Set(found)), nil
	case apierrors.IsNotFound(err):
		return false, err
	}
	return false, apierrors.NewInternalError(err)
}

// matchObject reports whether the object selector matches the object as it is or as it was.
func (c *Criteria) matchObject(s *Subject) (bool, error) {
	if c.objects.err != nil {
		return false, c.objects.err
	}
	if c.objects.Empty() {
		return true, nil
	}
	return s.Object != nil && c.objects.Matches(labels.Set(s.Object.GetLabels())) || s.Old != nil && c.objects.Matches(labels.Set(s.Old.GetLabels())), nil
}

// anyRule returns the version of the resource for which one of the rules matches the write; nil if none does.
func (c *Criteria) anyRule(rules []rule, s *Subject) *catalog.Info {
	for i := range rules {
		if rules[i].matches(s, s.Info) {
			return s.Info
		}
	}
	if !c.equivalent || len(s.equivalent) == 0 {
		return nil
	}
	for i := range rules {
		for _, info := range s.equivalent {
			if rules[i].matches(s, info) {
				return info
			}
		}
	}
	return nil
}

// rule is a named rule whose resources are split.
type rule struct {
	*admissionregistrationv1.NamedRuleWithOperations
	resources []split
}

type split struct{ resource, sub string }

func newRules(list []admissionregistrationv1.NamedRuleWithOperations) []rule {
	rules := make([]rule, len(list))
	for i := range list {
		rules[i].NamedRuleWithOperations = &list[i]
		for _, r := range list[i].Resources {
			resource, sub, _ := strings.Cut(r, "/")
			rules[i].resources = append(rules[i].resources, split{resource, sub})
		}
	}
	return rules
}

func (r *rule) matches(s *Subject, info *catalog.Info) bool {
	return r.operation(s.Operation) && r.resource(info, s.Subresource) && r.scope(s, info) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, s.Name))
}

func (r *rule) operation(o admission.Operation) bool {
	for _, operation := range r.Operations {
		if operation == admissionregistrationv1.OperationAll || string(operation) == string(o) {
			return true
		}
	}
	return false
}

func (r *rule) resource(info *catalog.Info, subresource string) bool {
	if !hasOrAll(r.APIGroups, info.GVR.Group) || !hasOrAll(r.APIVersions, info.GVR.Version) {
		return false
	}
	for _, s := range r.resources {
		if (s.resource == "*" || s.resource == info.GVR.Resource) && (s.sub == "*" || s.sub == subresource) {
			return true
		}
	}
	return false
}

// scope reports whether the write is in the scope of the rule. A namespace is an object of the cluster, although it is in itself.
func (r *rule) scope(s *Subject, info *catalog.Info) bool {
	if r.Scope == nil || *r.Scope == admissionregistrationv1.AllScopes {
		return true
	}
	isNamespace := info.GVR.Group == "" && info.GVR.Version == "v1" && info.GVR.Resource == "namespaces"
	switch *r.Scope {
	case admissionregistrationv1.NamespacedScope:
		return !isNamespace && s.In != ""
	case admissionregistrationv1.ClusterScope:
		return isNamespace || s.In == ""
	}
	return false
}

func hasOrAll(items []string, item string) bool {
	for _, i := range items {
		if i == "*" || i == item {
			return true
		}
	}
	return false
}
