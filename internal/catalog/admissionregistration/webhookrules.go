package admissionregistration

import (
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/expressions"
	webhookrules "skiff/internal/catalog/webhook"
)

var (
	reviewVersions = []string{"v1", "v1beta1"}
	harmless       = []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun}
	anySideEffects = []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun,
		admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown}
)

// leniency lists the rules that an update may break because the old configuration broke them already.
type leniency struct {
	sameConditions, sideEffects, reviewVersions, sameNames, selectors bool
	expressions                                                       sets.Set[string] // of the old match conditions, which may use more of CEL than new ones
}

// condition compiles a match condition.
func (l leniency) condition(p *check.Part, expression string) {
	compiled := expressions.NewCompiler(false).Compile(expression, expressions.Condition, expressions.Scope{Authorizer: true}, mode(l.expressions, expression))
	addCompileError(p, "expression", expression, compiled.Error)
}

func leniencyOf(new, old []webhook) leniency {
	l := leniency{sameConditions: len(new) == len(old), expressions: sets.New[string]()}
	names := sets.New[string]()
	for i := range old {
		h := &old[i]
		l.sameConditions = l.sameConditions && reflect.DeepEqual(new[i].MatchConditions, h.MatchConditions)
		for _, c := range h.MatchConditions {
			l.expressions.Insert(c.Expression)
		}
		l.sideEffects = l.sideEffects || h.SideEffects == nil || !slices.Contains(harmless, *h.SideEffects)
		l.reviewVersions = l.reviewVersions || len(h.AdmissionReviewVersions) > 0 && !hasKnownVersion(h)
		l.sameNames = l.sameNames || names.Has(h.Name)
		names.Insert(h.Name)
		p := check.At(nil)
		p.StrictSelector("", h.NamespaceSelector)
		p.StrictSelector("", h.ObjectSelector)
		l.selectors = l.selectors || len(p.Errors()) > 0
	}
	return l
}

func hasKnownVersion(h *webhook) bool {
	return slices.ContainsFunc(h.AdmissionReviewVersions, func(v string) bool { return slices.Contains(reviewVersions, v) })
}

func validateWebhooks(hooks []webhook, l leniency) *check.Part {
	root := check.At(nil)
	names := sets.New[string]()
	for i := range hooks {
		h, p := &hooks[i], root.Item("webhooks", i)
		validateWebhook(p, h, l)
		validateReviewVersions(p, h, l)
		if h.Name != "" && names.Has(h.Name) && !l.sameNames {
			p.Add(field.Duplicate(p.Path("name"), h.Name))
		}
		names.Insert(h.Name)
	}
	return root
}

func validateWebhook(p *check.Part, h *webhook, l leniency) {
	p.Add(validation.IsFullyQualifiedName(p.Path("name"), h.Name)...)
	for i := range h.Rules {
		validateRule(p.Item("rules", i), &h.Rules[i])
	}
	check.OneOf(p, "failurePolicy", *h.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	check.OneOf(p, "matchPolicy", *h.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
	allowed := harmless
	if l.sideEffects {
		allowed = anySideEffects
	}
	if h.SideEffects == nil {
		p.Required("sideEffects", "must specify one of "+joined(allowed))
	} else {
		check.OneOf(p, "sideEffects", *h.SideEffects, allowed...)
	}
	if t := *h.TimeoutSeconds; t < 1 || t > 30 {
		p.Invalid("timeoutSeconds", t, "the timeout value must be between 1 and 30 seconds")
	}
	selectors := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: l.selectors}
	p.Selector("namespaceSelector", h.NamespaceSelector, selectors)
	p.Selector("objectSelector", h.ObjectSelector, selectors)
	if h.ReinvocationPolicy != nil {
		check.OneOf(p, "reinvocationPolicy", *h.ReinvocationPolicy,
			admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
	switch c := p.Child("clientConfig"); {
	case (h.ClientConfig.URL == nil) == (h.ClientConfig.Service == nil):
		c.Required("", "exactly one of url or service is required")
	case h.ClientConfig.URL != nil:
		webhookrules.URL(c, *h.ClientConfig.URL)
	default:
		s := h.ClientConfig.Service
		webhookrules.Service(c.Child("service"), s.Name, s.Namespace, *s.Port, s.Path)
	}
	if !l.sameConditions {
		validateMatchConditions(p, h.MatchConditions, l.condition)
	}
}

func joined(classes []admissionregistrationv1.SideEffectClass) string {
	words := make([]string, len(classes))
	for i, c := range classes {
		words[i] = string(c)
	}
	return strings.Join(words, ", ")
}

func validateReviewVersions(p *check.Part, h *webhook, l leniency) {
	known := strings.Join(reviewVersions, ", ")
	if len(h.AdmissionReviewVersions) == 0 {
		p.Required("admissionReviewVersions", "must specify one of "+known)
		return
	}
	for i, version := range h.AdmissionReviewVersions {
		item := p.Item("admissionReviewVersions", i)
		if slices.Contains(h.AdmissionReviewVersions[:i], version) {
			item.Invalid("", version, "duplicate version")
			continue
		}
		item.Format("", version, validation.IsDNS1035Label)
	}
	if !l.reviewVersions && !hasKnownVersion(h) {
		p.Invalid("admissionReviewVersions", h.AdmissionReviewVersions, "must include at least one of "+known)
	}
}
