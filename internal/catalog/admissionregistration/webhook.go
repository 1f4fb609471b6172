package admissionregistration

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
)

var MutatingWebhookConfiguration = catalog.Resource[admissionregistrationv1.MutatingWebhookConfiguration]{
	Group: group, Version: "v1", Kind: "MutatingWebhookConfiguration", Plural: "mutatingwebhookconfigurations", Categories: categories,
	AnyFinalizer: true,
	Name:         validation.NameIsDNSSubdomain,
	Default: func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
		for i := range c.Webhooks {
			h := &c.Webhooks[i]
			defaultWebhook(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector, &h.TimeoutSeconds, &h.ClientConfig, h.Rules)
			fill(&h.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		}
	},
	Changed: func(new, old *admissionregistrationv1.MutatingWebhookConfiguration) bool {
		return !reflect.DeepEqual(new.Webhooks, old.Webhooks)
	},
	Validate: func(c *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
		root := validateWebhooks(mutatingWebhooks(c), leniency{})
		notStatic(root, c.Name)
		return root.Errors()
	},
	ValidateUpdate: func(new, old *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
		hooks := mutatingWebhooks(new)
		return validateWebhooks(hooks, leniencyOf(hooks, mutatingWebhooks(old))).Errors()
	},
	Warnings: func(new, _ *admissionregistrationv1.MutatingWebhookConfiguration) []string {
		return webhookWarnings(mutatingWebhooks(new))
	},
	Columns:  webhookColumns(func(c *admissionregistrationv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) }),
	Complete: true,
}

var ValidatingWebhookConfiguration = catalog.Resource[admissionregistrationv1.ValidatingWebhookConfiguration]{
	Group: group, Version: "v1", Kind: "ValidatingWebhookConfiguration", Plural: "validatingwebhookconfigurations", Categories: categories,
	AnyFinalizer: true,
	Name:         validation.NameIsDNSSubdomain,
	Default: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		for i := range c.Webhooks {
			h := &c.Webhooks[i]
			defaultWebhook(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector, &h.TimeoutSeconds, &h.ClientConfig, h.Rules)
		}
	},
	Changed: func(new, old *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
		return !reflect.DeepEqual(new.Webhooks, old.Webhooks)
	},
	Validate: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
		root := validateWebhooks(validatingWebhooks(c), leniency{})
		notStatic(root, c.Name)
		return root.Errors()
	},
	ValidateUpdate: func(new, old *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
		hooks := validatingWebhooks(new)
		return validateWebhooks(hooks, leniencyOf(hooks, validatingWebhooks(old))).Errors()
	},
	Warnings: func(new, _ *admissionregistrationv1.ValidatingWebhookConfiguration) []string {
		return webhookWarnings(validatingWebhooks(new))
	},
	Columns:  webhookColumns(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) int { return len(c.Webhooks) }),
	Complete: true,
}

func defaultWebhook(failure **admissionregistrationv1.FailurePolicyType, match **admissionregistrationv1.MatchPolicyType,
	namespaces, objects **metav1.LabelSelector, timeout **int32,
	client *admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations) {
	fill(failure, admissionregistrationv1.Fail)
	fill(match, admissionregistrationv1.Equivalent)
	fill(namespaces, metav1.LabelSelector{})
	fill(objects, metav1.LabelSelector{})
	fill(timeout, 10)
	if client.Service != nil {
		fill(&client.Service.Port, 443)
	}
	for i := range rules {
		fill(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

// webhook is a webhook of either kind. The types differ only in reinvocationPolicy, which validating webhooks lack.
type webhook = admissionregistrationv1.MutatingWebhook

func mutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) []webhook {
	return c.Webhooks
}

func validatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) []webhook {
	hooks := make([]webhook, len(c.Webhooks))
	for i, h := range c.Webhooks {
		hooks[i] = webhook{Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy,
			MatchPolicy: h.MatchPolicy, NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, SideEffects: h.SideEffects,
			TimeoutSeconds: h.TimeoutSeconds, AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: h.MatchConditions}
	}
	return hooks
}

// untouchable are resources that webhooks are never called for, because that could lock everybody out.
var untouchable = []schema.GroupResource{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
	{Group: "authentication.k8s.io", Resource: "tokenreviews"},
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
}

// webhookWarnings warns of rules that name a resource, not just by a wildcard, for which they will never be called.
func webhookWarnings(hooks []webhook) []string {
	var warnings []string
	for i := range hooks {
		for j, rule := range hooks[i].Rules {
			if slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.Resources, "*") {
				continue
			}
			var named []schema.GroupResource
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					gr := schema.GroupResource{Group: group, Resource: resource}
					if slices.Contains(untouchable, gr) && !slices.Contains(named, gr) {
						named = append(named, gr)
						warnings = append(warnings, fmt.Sprintf("webhooks[%d].rules[%d]: %s is excluded from admission webhooks; this rule will have no effect", i, j, gr))
					}
				}
			}
		}
	}
	return warnings
}

func webhookColumns[T any](count func(*T) int) []catalog.Column[T] {
	return []catalog.Column[T]{
		catalog.NameColumn[T](),
		{Name: "Webhooks", Type: "integer", Description: "Webhooks indicates the number of webhooks registered in this configuration",
			Cell: func(c *T, _ time.Time) any { return int64(count(c)) }},
		catalog.AgeColumn[T](),
	}
}
