package webhook

import (
	"encoding/json"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/reviewclient"
)

// specOf returns the spec of the review of a request.
func specOf(a *authz.Attributes) (spec authorizationv1.SubjectAccessReviewSpec) {
	if u := a.User; u != nil {
		spec.User, spec.UID, spec.Groups = u.Username, u.UID, u.Groups
		if u.Extra != nil {
			spec.Extra = make(map[string]authorizationv1.ExtraValue, len(u.Extra))
			for key, values := range u.Extra {
				spec.Extra[key] = authorizationv1.ExtraValue(values)
			}
		}
	}
	if !a.Resource {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
		return spec
	}
	resource := &authorizationv1.ResourceAttributes{Namespace: a.Namespace, Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Plural,
		Subresource: a.Subresource, Name: a.Name}
	if requirements := fieldRequirements(a.FieldSelector); len(requirements) > 0 {
		resource.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: requirements}
	}
	if requirements := labelRequirements(a.LabelSelector); len(requirements) > 0 {
		resource.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: requirements}
	}
	spec.ResourceAttributes = resource
	return spec
}

// fieldRequirements returns the requirements of a field selector; none if it cannot be parsed: a selector only narrows what is asked for.
func fieldRequirements(selector string) (out []metav1.FieldSelectorRequirement) {
	if selector == "" {
		return nil
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return nil
	}
	for _, r := range parsed.Requirements() {
		operator := metav1.FieldSelectorOpIn
		if r.Operator == selection.NotEquals {
			operator = metav1.FieldSelectorOpNotIn
		}
		out = append(out, metav1.FieldSelectorRequirement{Key: r.Field, Operator: operator, Values: []string{r.Value}})
	}
	return out
}

var labelOperators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.In: metav1.LabelSelectorOpIn,
	selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// labelRequirements returns the requirements of a label selector, but for those with operators that reviews do not have; none if it cannot be parsed.
func labelRequirements(selector string) (out []metav1.LabelSelectorRequirement) {
	if selector == "" {
		return nil
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil
	}
	requirements, _ := parsed.Requirements()
	for _, r := range requirements {
		operator, ok := labelOperators[r.Operator()]
		if !ok {
			continue
		}
		requirement := metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator}
		if values := r.ValuesUnsorted(); len(values) > 0 {
			requirement.Values = values
		}
		out = append(out, requirement)
	}
	return out
}

// encode returns a review of a version in JSON.
func encode(spec *authorizationv1.SubjectAccessReviewSpec, version string) ([]byte, error) {
	kinds := metav1.TypeMeta{APIVersion: authorizationv1.GroupName + "/" + version, Kind: "SubjectAccessReview"}
	if version == "v1" {
		return json.Marshal(&authorizationv1.SubjectAccessReview{TypeMeta: kinds, Spec: *spec})
	}
	old := authorizationv1beta1.SubjectAccessReview{TypeMeta: kinds, Spec: authorizationv1beta1.SubjectAccessReviewSpec{User: spec.User, Groups: spec.Groups, UID: spec.UID,
		NonResourceAttributes: (*authorizationv1beta1.NonResourceAttributes)(spec.NonResourceAttributes)}}
	if r := spec.ResourceAttributes; r != nil {
		old.Spec.ResourceAttributes = &authorizationv1beta1.ResourceAttributes{Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: r.Resource,
			Subresource: r.Subresource, Name: r.Name, FieldSelector: r.FieldSelector, LabelSelector: r.LabelSelector}
	}
	if spec.Extra != nil {
		old.Spec.Extra = make(map[string]authorizationv1beta1.ExtraValue, len(spec.Extra))
		for key, values := range spec.Extra {
			old.Spec.Extra[key] = authorizationv1beta1.ExtraValue(values)
		}
	}
	return json.Marshal(&old)
}

// decode returns the status of a response, which both versions have in the same form.
func decode(response []byte, kind schema.GroupVersionKind) (*authorizationv1.SubjectAccessReviewStatus, error) {
	var review struct {
		Status authorizationv1.SubjectAccessReviewStatus `json:"status"`
	}
	if err := reviewclient.Decode(response, kind, &review); err != nil {
		return nil, err
	}
	return &review.Status, nil
}
