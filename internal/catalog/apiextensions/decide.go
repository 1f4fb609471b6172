package apiextensions

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/webhook"
)

type condition = apiextensionsv1.CustomResourceDefinitionCondition

// Decide returns the status that a definition should have beside all others: its accepted names and the conditions NamesAccepted,
// Established, NonStructuralSchema and KubernetesAPIApprovalPolicyConformant. The others may include the definition itself, and those of other
// groups. Their accepted names are taken; names that are only asked for are not.
//
// ready says that the server serves the definition, or would at once: only then may an accepted definition become Established. The second
// result says whether the status differs from the definition's own. Conditions that change state get the time now; nothing given is modified.
func Decide(d *apiextensionsv1.CustomResourceDefinition, others []*apiextensionsv1.CustomResourceDefinition, ready bool, now metav1.Time) (apiextensionsv1.CustomResourceDefinitionStatus, bool) {
	next := &definition{ObjectMeta: d.ObjectMeta, Spec: d.Spec}
	d.Status.DeepCopyInto(&next.Status)
	decideNames(next, others, now)
	if ready {
		establish(next, now)
	}
	if c := NonStructural(next); c != nil {
		setCondition(next, *c, now)
	} else {
		removeCondition(next, apiextensionsv1.NonStructuralSchema)
	}
	if c := Approval(next); c != nil {
		setCondition(next, *c, now)
	}
	return next.Status, !apiequality.Semantic.DeepEqual(next.Status, d.Status)
}

// decideNames gives a definition the names that are free, if it does not have them yet.
func decideNames(d *definition, others []*definition, now metav1.Time) {
	if apiequality.Semantic.DeepEqual(d.Spec.Names, d.Status.AcceptedNames) {
		return
	}
	accepted, names := AcceptNames(d, others)
	d.Status.AcceptedNames = accepted
	setCondition(d, names, now)
	switch established := apihelpers.FindCRDCondition(d, apiextensionsv1.Established); {
	case established != nil && established.Status == apiextensionsv1.ConditionTrue:
	case names.Status == apiextensionsv1.ConditionTrue:
		setCondition(d, condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
			Reason: "Installing", Message: "the initial names have been accepted"}, now)
	case established == nil:
		setCondition(d, condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
			Reason: "NotAccepted", Message: "not all names are accepted"}, now)
	}
}

// AcceptNames returns the names that a definition gets and the condition NamesAccepted. A name that another definition of the group has is
// refused; the definition then keeps the one it had. Categories are never refused.
func AcceptNames(d *apiextensionsv1.CustomResourceDefinition, others []*apiextensionsv1.CustomResourceDefinition) (apiextensionsv1.CustomResourceDefinitionNames, apiextensionsv1.CustomResourceDefinitionCondition) {
	resources, kinds := takenNames(d, others)
	asked, had := &d.Spec.Names, &d.Status.AcceptedNames
	names := *had
	c := condition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found"}
	refuse := func(reason, message string) {
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, reason, message
	}
	accept := func(into *string, asked, had string, taken map[string]bool, reason string) {
		if asked != had && taken[asked] {
			refuse(reason, inUse(asked))
			return
		}
		*into = asked
	}
	// Of several conflicts the last is the one reported.
	accept(&names.Plural, asked.Plural, had.Plural, resources, "PluralConflict")
	accept(&names.Singular, asked.Singular, had.Singular, resources, "SingularConflict")
	var conflicts []error
	for _, name := range asked.ShortNames {
		if name != "" && !slices.Contains(had.ShortNames, name) && resources[name] {
			conflicts = append(conflicts, fmt.Errorf("%s", inUse(name)))
		}
	}
	if len(conflicts) > 0 {
		refuse("ShortNamesConflict", aggregate(conflicts))
	} else {
		names.ShortNames = asked.ShortNames
	}
	accept(&names.Kind, asked.Kind, had.Kind, kinds, "KindConflict")
	accept(&names.ListKind, asked.ListKind, had.ListKind, kinds, "ListKindConflict")
	names.Categories = asked.Categories
	return names, c
}

func inUse(name string) string { return fmt.Sprintf("%q is already in use", name) }

// takenNames returns the names of resources and of kinds that definitions of the same group have, the definition itself included: its plural
// name may not be its short name later.
func takenNames(d *definition, others []*definition) (resources, kinds map[string]bool) {
	resources, kinds = map[string]bool{}, map[string]bool{}
	take := func(n *apiextensionsv1.CustomResourceDefinitionNames) {
		resources[n.Plural], resources[n.Singular] = true, true
		for _, name := range n.ShortNames {
			resources[name] = true
		}
		kinds[n.Kind], kinds[n.ListKind] = true, true
	}
	take(&d.Status.AcceptedNames)
	for _, other := range others {
		if other.Spec.Group == d.Spec.Group && other.Name != d.Name {
			take(&other.Status.AcceptedNames)
		}
	}
	return resources, kinds
}

// establish lets a definition whose names are accepted be served, unless its conversion webhook could not be verified. Once Established,
// it stays so.
func establish(d *definition, now metav1.Time) {
	if !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.NamesAccepted) || apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
		return
	}
	c := condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
		Reason: "InitialNamesAccepted", Message: "the initial names have been accepted"}
	if conversion := d.Spec.Conversion; conversion != nil && conversion.Webhook != nil && conversion.Webhook.ClientConfig != nil &&
		webhook.CABundleError(conversion.Webhook.ClientConfig.CABundle) != nil {
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "InvalidCABundle", "The conversion webhook CABundle is invalid"
	}
	setCondition(d, c, now)
}

// NonStructural returns the condition NonStructuralSchema of a definition; nil if its schemas are structural.
func NonStructural(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	c := &condition{Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionTrue, Reason: "Violations"}
	var errs field.ErrorList
	if d.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true, "must be false"))
	}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		var converted internal.CustomResourceValidation
		if apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema, &converted, nil) != nil {
			continue
		}
		structural, err := structuralschema.NewStructural(converted.OpenAPIV3Schema)
		if err != nil {
			c.Status, c.Reason = apiextensionsv1.ConditionUnknown, "StructuralError"
			c.Message = fmt.Sprintf("failed to check validation schema for version %s: %v", v.Name, err)
			return c
		}
		path := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		errs = append(errs, structuralschema.ValidateStructural(path, structural)...)
	}
	if len(errs) == 0 {
		return nil
	}
	c.Message = errs.ToAggregate().Error()
	return c
}

// Approval returns the condition KubernetesAPIApprovalPolicyConformant of a definition; nil if its group is not the Kubernetes community's.
func Approval(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	if !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		return nil
	}
	state, message := apihelpers.GetAPIApprovalState(d.Annotations)
	c := &condition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse, Message: message}
	switch state {
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Reason = "MissingAnnotation"
	default:
		c.Reason = "InvalidAnnotation"
	}
	return c
}
