package flowcontrol

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// FlowSchema declares flow schemas, which assign requests to priority levels and flows.
var FlowSchema = catalog.Resource[flowcontrolv1.FlowSchema]{
	Group: group, Version: version, Kind: "FlowSchema", Plural: "flowschemas",
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default: func(s *flowcontrolv1.FlowSchema) {
		if s.Spec.MatchingPrecedence == 0 {
			s.Spec.MatchingPrecedence = 1000
		}
	},
	Changed:        catalog.SpecChanged[flowcontrolv1.FlowSchema],
	Validate:       validateSchema,
	ValidateUpdate: func(new, _ *flowcontrolv1.FlowSchema) field.ErrorList { return validateSchema(new) },
	Status: &catalog.Edit[flowcontrolv1.FlowSchema]{
		PrepareUpdate: func(new, old *flowcontrolv1.FlowSchema) { keepMeta(&new.ObjectMeta, &old.ObjectMeta) },
		ValidateUpdate: func(new, _ *flowcontrolv1.FlowSchema) field.ErrorList {
			at := check.At(field.NewPath("status"))
			checkConditions(at, new.Status.Conditions, schemaCondition)
			return at.Errors()
		},
		ResetFields: []string{"metadata"},
	},
	Columns:  schemaColumns,
	Arrange:  byPrecedence,
	Complete: true,
}

func validateSchema(s *flowcontrolv1.FlowSchema) field.ErrorList {
	at := check.At(nil)
	spec := at.Child("spec")
	checkPrecedence(spec, s)
	if d := s.Spec.DistinguisherMethod; d != nil && d.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType && d.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
		path := spec.Child("distinguisherMethod").Path("type")
		at.Add(field.NotSupported(path, check.Internal(d), []string{"ByNamespace", "ByUser"}))
	}
	if level := s.Spec.PriorityLevelConfiguration.Name; level == "" {
		spec.Child("priorityLevelConfiguration").Required("name", "must reference a priority level")
	} else {
		spec.Child("priorityLevelConfiguration").Format("name", level, func(name string) []string { return validation.NameIsDNSSubdomain(name, false) })
	}
	for i := range s.Spec.Rules {
		checkRules(spec.Item("rules", i), &s.Spec.Rules[i])
	}
	if fixed := mandatorySchema(s.Name); fixed != nil && !apiequality.Semantic.DeepEqual(s.Spec, fixed.Spec) {
		at.Invalid("spec", check.Internal(s.Spec), fmt.Sprintf("spec of '%s' must equal the fixed value", s.Name))
	}
	checkConditions(at.Child("status"), s.Status.Conditions, schemaCondition)
	return at.Errors()
}

func checkPrecedence(at *check.Part, s *flowcontrolv1.FlowSchema) {
	switch p := s.Spec.MatchingPrecedence; {
	case p <= 0:
		at.Invalid("matchingPrecedence", p, "must be a positive value")
	case p > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		at.Invalid("matchingPrecedence", p, fmt.Sprintf("must not be greater than %d", flowcontrolv1.FlowSchemaMaxMatchingPrecedence))
	case p == 1 && s.Name != "exempt":
		at.Invalid("matchingPrecedence", p, "only the schema named 'exempt' may have matchingPrecedence 1")
	}
}

func checkRules(at *check.Part, r *flowcontrolv1.PolicyRulesWithSubjects) {
	at.Present("subjects", len(r.Subjects) > 0, "subjects must contain at least one value")
	for i := range r.Subjects {
		checkSubject(at.Item("subjects", i), &r.Subjects[i])
	}
	at.Present("", len(r.ResourceRules)+len(r.NonResourceRules) > 0, "at least one of resourceRules and nonResourceRules has to be non-empty")
	for i := range r.ResourceRules {
		checkResourceRule(at.Item("resourceRules", i), &r.ResourceRules[i])
	}
	for i := range r.NonResourceRules {
		checkNonResourceRule(at.Item("nonResourceRules", i), &r.NonResourceRules[i])
	}
}

// checkSubject requires the member of a subject that its kind names, and no other.
func checkSubject(at *check.Part, s *flowcontrolv1.Subject) {
	members := []struct {
		kind flowcontrolv1.SubjectKind
		name string
		set  bool
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil},
	}
	known := false
	for _, m := range members {
		if m.kind == s.Kind {
			known = true
			at.Present(m.name, m.set, fmt.Sprintf("%s is required when subject kind is '%s'", m.name, m.kind))
		}
	}
	if !known {
		check.OneOf(at, "kind", s.Kind, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
		return
	}
	checkSubjectName(at, s)
	for _, m := range members {
		if m.kind != s.Kind && m.set {
			at.Forbidden(m.name, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", m.name, m.kind))
		}
	}
}

func checkSubjectName(at *check.Part, s *flowcontrolv1.Subject) {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		at.Child("user").Present("name", s.User.Name != "", "")
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		at.Child("group").Present("name", s.Group.Name != "", "")
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		at := at.Child("serviceAccount")
		at.Present("name", s.ServiceAccount.Name != "", "")
		if name := s.ServiceAccount.Name; name != "" && name != flowcontrolv1.NameAll {
			at.Format("name", name, func(name string) []string { return validation.ValidateServiceAccountName(name, false) })
		}
		at.Present("namespace", s.ServiceAccount.Namespace != "", "must specify namespace for service account")
		if s.ServiceAccount.Namespace != "" {
			at.Format("namespace", s.ServiceAccount.Namespace, isNamespace)
		}
	}
}

func isNamespace(name string) []string { return validation.ValidateNamespaceName(name, false) }

var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func checkVerbs(at *check.Part, list []string) {
	if checkAllOrSome(at, "verbs", list, "verbs must contain at least one value", "verbs") {
		return
	}
	for _, verb := range list {
		if !slices.Contains(verbs, verb) {
			at.Add(field.NotSupported(at.Path("verbs"), list, verbs))
			return
		}
	}
}

// checkAllOrSome validates a list of items or of "*" alone. It reports whether its items need no further
// validation.
func checkAllOrSome(at *check.Part, name string, list []string, empty, things string) bool {
	switch {
	case len(list) == 0:
		at.Required(name, empty)
	case !slices.Contains(list, "*"):
		return false
	case len(list) > 1:
		at.Invalid(name, list, "if '*' is present, must not specify other "+things)
	}
	return true
}

func checkResourceRule(at *check.Part, r *flowcontrolv1.ResourcePolicyRule) {
	checkVerbs(at, r.Verbs)
	checkAllOrSome(at, "apiGroups", r.APIGroups, "resource rules must supply at least one api group", "api groups")
	checkAllOrSome(at, "resources", r.Resources, "resource rules must supply at least one resource", "resources")
	if len(r.Namespaces) == 0 && r.ClusterScope {
		return
	}
	if checkAllOrSome(at, "namespaces", r.Namespaces, "resource rules that are not cluster scoped must supply at least one namespace", "namespaces") {
		return
	}
	for i, ns := range r.Namespaces {
		for _, msg := range isNamespace(ns) {
			at.Item("namespaces", i).Invalid("", ns, "each member of this list must be '*' or a DNS-1123 label; "+msg)
		}
	}
}

func checkNonResourceRule(at *check.Part, r *flowcontrolv1.NonResourcePolicyRule) {
	checkVerbs(at, r.Verbs)
	if checkAllOrSome(at, "nonResourceURLs", r.NonResourceURLs, "nonResourceURLs must contain at least one value", "non-resource URLs") {
		return
	}
	for i, url := range r.NonResourceURLs {
		if msg := urlProblem(url); msg != "" {
			at.Item("nonResourceURLs", i).Invalid("", url, msg)
		}
	}
}

func urlProblem(url string) string {
	switch stars := strings.Count(url, "*"); {
	case url == "":
		return "must not be empty"
	case !strings.HasPrefix(url, "/"):
		return "must start with slash"
	case strings.Contains(url, " "):
		return "must not contain white-space"
	case strings.Contains(url, "//"):
		return "must not contain double slash"
	case stars > 1 || stars == 1 && !strings.HasSuffix(url, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

// byPrecedence sorts schemas by precedence, the order in which a request is matched against them.
func byPrecedence(rows []catalog.Row[flowcontrolv1.FlowSchema]) {
	slices.SortFunc(rows, func(a, b catalog.Row[flowcontrolv1.FlowSchema]) int {
		return cmp.Or(cmp.Compare(a.Object.Spec.MatchingPrecedence, b.Object.Spec.MatchingPrecedence), strings.Compare(a.Object.Name, b.Object.Name))
	})
}

var schemaDoc = flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()

var schemaColumns = []catalog.Column[flowcontrolv1.FlowSchema]{
	catalog.NameColumn[flowcontrolv1.FlowSchema](),
	{Name: "PriorityLevel", Description: flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"], Cell: func(s *flowcontrolv1.FlowSchema, _ time.Time) any {
		return s.Spec.PriorityLevelConfiguration.Name
	}},
	{Name: "MatchingPrecedence", Description: schemaDoc["matchingPrecedence"], Cell: func(s *flowcontrolv1.FlowSchema, _ time.Time) any {
		return int64(s.Spec.MatchingPrecedence)
	}},
	{Name: "DistinguisherMethod", Description: schemaDoc["distinguisherMethod"], Cell: func(s *flowcontrolv1.FlowSchema, _ time.Time) any {
		if s.Spec.DistinguisherMethod == nil {
			return "<none>"
		}
		return string(s.Spec.DistinguisherMethod.Type)
	}},
	catalog.AgeColumn[flowcontrolv1.FlowSchema](),
	{Name: "MissingPL", Description: "references a broken or non-existent PriorityLevelConfiguration", Cell: func(s *flowcontrolv1.FlowSchema, _ time.Time) any {
		for _, c := range s.Status.Conditions {
			if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
				return string(c.Status)
			}
		}
		return "?"
	}},
}
