package admissionregistration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/expressions"
)

var ValidatingAdmissionPolicy = catalog.Resource[admissionregistrationv1.ValidatingAdmissionPolicy]{
	Group: group, Version: "v1", Kind: "ValidatingAdmissionPolicy", Plural: "validatingadmissionpolicies", Categories: categories,
	AnyFinalizer: true,
	Name:         apivalidation.NameIsDNSSubdomain,
	Default: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
		fill(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
		defaultMatchResources(p.Spec.MatchConstraints)
	},
	Changed: catalog.SpecChanged[admissionregistrationv1.ValidatingAdmissionPolicy],
	Validate: func(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
		spec := validateValidatingPolicy(p, knownExpressions{}, false)
		notStatic(spec, p.Name)
		return spec.Errors()
	},
	ValidateUpdate: func(new, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
		return validateValidatingPolicy(new, knownOfValidating(old), apiequality.Semantic.DeepEqual(new.Spec.ParamKind, old.Spec.ParamKind) &&
			apiequality.Semantic.DeepEqual(new.Spec.MatchConditions, old.Spec.MatchConditions)).Errors()
	},
	Status: &catalog.Edit[admissionregistrationv1.ValidatingAdmissionPolicy]{
		PrepareUpdate: func(new, old *admissionregistrationv1.ValidatingAdmissionPolicy) {
			metav1.ResetObjectMetaForStatus(new, old)
		},
		ResetFields:    []string{"metadata"},
		ValidateUpdate: validatePolicyStatus,
	},
	Columns: policyColumns("Validations", "Validations indicates the number of validation rules defined in this configuration",
		func(p *admissionregistrationv1.ValidatingAdmissionPolicy) (int, *admissionregistrationv1.ParamKind) {
			return len(p.Spec.Validations), p.Spec.ParamKind
		}),
	Complete: true,
}

var MutatingAdmissionPolicy = catalog.Resource[admissionregistrationv1.MutatingAdmissionPolicy]{
	Group: group, Version: "v1", Kind: "MutatingAdmissionPolicy", Plural: "mutatingadmissionpolicies", Categories: categories,
	AnyFinalizer: true,
	Name:         apivalidation.NameIsDNSSubdomain,
	Default: func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		fill(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
		defaultMatchResources(p.Spec.MatchConstraints)
	},
	Changed: catalog.SpecChanged[admissionregistrationv1.MutatingAdmissionPolicy],
	Validate: func(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
		spec := validateMutatingPolicy(&p.Spec, knownExpressions{}, false)
		notStatic(spec, p.Name)
		return spec.Errors()
	},
	ValidateUpdate: func(new, old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
		return validateMutatingPolicy(&new.Spec, knownOfMutating(old), apiequality.Semantic.DeepEqual(new.Spec.ParamKind, old.Spec.ParamKind) &&
			apiequality.Semantic.DeepEqual(new.Spec.MatchConditions, old.Spec.MatchConditions)).Errors()
	},
	Columns: policyColumns("Mutations", "Mutation indicates the number of mutations rules defined in this configuration",
		func(p *admissionregistrationv1.MutatingAdmissionPolicy) (int, *admissionregistrationv1.ParamKind) {
			return len(p.Spec.Mutations), p.Spec.ParamKind
		}),
	Complete: true,
}

// scope is the part of both kinds of policies that selects requests.
type scope struct {
	failure    *admissionregistrationv1.FailurePolicyType
	params     *admissionregistrationv1.ParamKind
	resources  *admissionregistrationv1.MatchResources
	conditions []admissionregistrationv1.MatchCondition
	variables  []admissionregistrationv1.Variable
	mutates    bool
}

// validateScope validates a policy up to its variables. Match conditions that did not change are not validated again.
func validateScope(spec *check.Part, s scope, k *expressionChecker, sameConditions bool) {
	check.OneOf(spec, "failurePolicy", *s.failure, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	if s.params != nil {
		validateParamKind(spec.Child("paramKind"), s.params)
	}
	if s.resources == nil {
		spec.Required("matchConstraints", "")
	} else {
		constraints := spec.Child("matchConstraints")
		validateMatchResources(constraints, s.resources)
		constraints.Present("resourceRules", len(s.resources.ResourceRules) > 0, "")
		if s.mutates {
			validateMutableOperations(constraints, s.resources)
		}
	}
	if !sameConditions {
		validateMatchConditions(spec, s.conditions, k.condition)
	}
	for i, v := range s.variables {
		p := spec.Item("variables", i)
		if strings.TrimSpace(v.Name) == "" {
			p.Required("name", "name is not specified")
		} else if !isIdentifier(v.Name) {
			p.Invalid("name", v.Name, "must be a valid CEL identifier")
		}
		if strings.TrimSpace(v.Expression) == "" {
			p.Required("expression", "expression is not specified")
		} else {
			k.variable(p, &v)
		}
	}
}

// validateMutableOperations refuses operations whose objects cannot be mutated.
func validateMutableOperations(p *check.Part, m *admissionregistrationv1.MatchResources) {
	for i := range m.ResourceRules {
		for _, operation := range m.ResourceRules[i].Operations {
			check.OneOf(p.Child("resourceRules"), "operations", operation, admissionregistrationv1.OperationAll,
				admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update)
		}
	}
}

func validateParamKind(p *check.Part, k *admissionregistrationv1.ParamKind) {
	group, version, ok := strings.Cut(k.APIVersion, "/")
	if !ok {
		group, version = "", k.APIVersion
	}
	switch {
	case k.APIVersion == "":
		p.Required("apiVersion", "")
	case strings.Contains(version, "/"):
		p.Invalid("apiVersion", k.APIVersion, "unexpected GroupVersion string: "+k.APIVersion)
	default:
		if group != "" {
			oneLine(p, "apiVersion", group, validation.IsDNS1123Subdomain)
		}
		if version == "" {
			p.Invalid("apiVersion", k.APIVersion, "version must be specified")
		} else {
			oneLine(p, "apiVersion", version, validation.IsDNS1035Label)
		}
	}
	if k.Kind == "" {
		p.Required("kind", "")
	} else if msgs := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(msgs) > 0 {
		p.Invalid("kind", k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(msgs, ","))
	}
}

// oneLine adds a single error with everything that is wrong with a value.
func oneLine(p *check.Part, name, value string, rule func(string) []string) {
	if msgs := rule(value); len(msgs) > 0 {
		p.Invalid(name, value, strings.Join(msgs, ","))
	}
}

var (
	identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)
	reserved   = strings.Fields("true false null in as break const continue else for function if import let loop package namespace return var void while")
)

func isIdentifier(name string) bool {
	return identifier.MatchString(name) && !slices.Contains(reserved, name)
}

func validateValidatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy, known knownExpressions, sameConditions bool) *check.Part {
	s, spec := &p.Spec, check.At(field.NewPath("spec"))
	k := newChecker(len(s.Variables) > 0, s.ParamKind != nil, known)
	validateScope(spec, scope{failure: s.FailurePolicy, params: s.ParamKind, resources: s.MatchConstraints,
		conditions: s.MatchConditions, variables: s.Variables}, k, sameConditions)
	if len(s.Validations)+len(s.AuditAnnotations) == 0 {
		const detail = "validations or auditAnnotations must contain at least one item"
		spec.Required("validations", detail)
		spec.Required("auditAnnotations", detail)
		return spec
	}
	for i := range s.Validations {
		validateValidation(spec.Item("validations", i), &s.Validations[i], k)
	}
	validateAuditAnnotations(spec, p.Name, s.AuditAnnotations, k)
	return spec
}

func validateValidation(p *check.Part, v *admissionregistrationv1.Validation, k *expressionChecker) {
	message := strings.TrimSpace(v.Message)
	if strings.TrimSpace(v.Expression) == "" {
		p.Required("expression", "expression is not specified")
	} else {
		k.validation(p, v.Expression)
	}
	switch {
	case v.MessageExpression == "":
	case strings.TrimSpace(v.MessageExpression) == "":
		p.Invalid("messageExpression", v.MessageExpression, "must be non-empty if specified")
	default:
		k.message(p, v.MessageExpression)
	}
	if v.Message != "" && message == "" {
		p.Invalid("message", v.Message, "must be non-empty if specified")
	} else if strings.ContainsAny(message, "\n\r") {
		p.Invalid("message", v.Message, "must not contain line breaks")
	}
	if v.Reason != nil {
		check.OneOf(p, "reason", *v.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)
	}
}

const (
	maxAuditAnnotations = 20
	maxAuditExpression  = 5 * 1024
)

func validateAuditAnnotations(spec *check.Part, policy string, annotations []admissionregistrationv1.AuditAnnotation, k *expressionChecker) {
	if len(annotations) > maxAuditAnnotations {
		spec.Invalid("auditAnnotations", check.Internal(annotations), fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations))
	}
	seen := map[string]bool{}
	for i, a := range annotations {
		p := spec.Item("auditAnnotations", i)
		if policy == "" {
			p.Invalid("key", a.Key, "requires metadata.name be non-empty")
		} else {
			p.Format("key", policy+"/"+a.Key, validation.IsQualifiedName)
		}
		switch expression := strings.TrimSpace(a.ValueExpression); {
		case expression == "":
			p.Required("valueExpression", "valueExpression is not specified")
		case len(expression) > maxAuditExpression:
			p.Required("valueExpression", fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression))
		default:
			k.annotation(p, a.ValueExpression)
		}
		if seen[a.Key] {
			p.Add(field.Duplicate(p.Path("key"), a.Key))
		}
		seen[a.Key] = true
	}
}

func validateMutatingPolicy(s *admissionregistrationv1.MutatingAdmissionPolicySpec, known knownExpressions, sameConditions bool) *check.Part {
	spec := check.At(field.NewPath("spec"))
	k := newChecker(true, s.ParamKind != nil, known)
	validateScope(spec, scope{failure: s.FailurePolicy, params: s.ParamKind, resources: s.MatchConstraints,
		conditions: s.MatchConditions, variables: s.Variables, mutates: true}, k, sameConditions)
	spec.Present("mutations", len(s.Mutations) > 0, "mutations must contain at least one item")
	for i := range s.Mutations {
		validateMutation(spec.Item("mutations", i), &s.Mutations[i], k)
	}
	if s.ReinvocationPolicy == "" {
		spec.Required("reinvocationPolicy", "")
	} else {
		check.OneOf(spec, "reinvocationPolicy", s.ReinvocationPolicy,
			admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
	return spec
}

func validateMutation(p *check.Part, m *admissionregistrationv1.Mutation, k *expressionChecker) {
	patches := []struct {
		kind       admissionregistrationv1.PatchType
		name       string
		given      bool
		result     expressions.Result
		expression string
	}{{kind: admissionregistrationv1.PatchTypeApplyConfiguration, name: "applyConfiguration", given: m.ApplyConfiguration != nil, result: expressions.ApplyConfiguration},
		{kind: admissionregistrationv1.PatchTypeJSONPatch, name: "jsonPatch", given: m.JSONPatch != nil, result: expressions.JSONPatch}}
	if m.ApplyConfiguration != nil {
		patches[0].expression = m.ApplyConfiguration.Expression
	}
	if m.JSONPatch != nil {
		patches[1].expression = m.JSONPatch.Expression
	}
	if m.PatchType == "" {
		p.Required("patchType", "")
		return
	}
	if m.PatchType != patches[0].kind && m.PatchType != patches[1].kind {
		check.OneOf(p, "patchType", m.PatchType, patches[0].kind, patches[1].kind)
		return
	}
	for _, patch := range patches {
		if patch.kind != m.PatchType {
			continue
		}
		switch {
		case !patch.given:
			p.Required(patch.name, "must be specified when patchType is "+string(m.PatchType))
		case strings.TrimSpace(patch.expression) == "":
			p.Child(patch.name).Required("expression", "")
		default:
			k.mutation(p.Child(patch.name), patch.expression, patch.result)
		}
	}
	for _, patch := range patches {
		if patch.kind != m.PatchType && patch.given {
			p.Invalid(patch.name, "{"+patch.name+"}", "must not be specified when patchType is "+string(m.PatchType))
		}
	}
}

func validatePolicyStatus(new, _ *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	status := check.At(field.NewPath("status"))
	if t := new.Status.TypeChecking; t != nil {
		for i, w := range t.ExpressionWarnings {
			p := status.Child("typeChecking").Item("expressionWarnings", i)
			p.Present("warning", w.Warning != "", "")
			p.Present("fieldRef", strings.TrimSpace(w.FieldRef) != "", "")
		}
	}
	status.Add(metav1validation.ValidateConditions(new.Status.Conditions, status.Path("conditions"))...)
	return status.Errors()
}

func policyColumns[T any](name, description string, of func(*T) (int, *admissionregistrationv1.ParamKind)) []catalog.Column[T] {
	return []catalog.Column[T]{
		catalog.NameColumn[T](),
		{Name: name, Type: "integer", Description: description, Cell: func(p *T, _ time.Time) any {
			count, _ := of(p)
			return int64(count)
		}},
		{Name: "ParamKind", Description: "ParamKind specifies the kind of resources used to parameterize this policy",
			Cell: func(p *T, _ time.Time) any {
				if _, params := of(p); params != nil {
					return params.APIVersion + "/" + params.Kind
				}
				return "<unset>"
			}},
		catalog.AgeColumn[T](),
	}
}
