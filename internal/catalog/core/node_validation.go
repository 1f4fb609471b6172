package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
)

// validateNode validates a node that is created or updated through the main endpoint.
func validateNode(n *corev1.Node) field.ErrorList {
	meta := check.At(field.NewPath("metadata"))
	validateNodeAnnotations(meta.Child("annotations"), n.Annotations)
	validateTaints(meta, "taints", n.Spec.Taints)
	errs := append(meta.Errors(), validateNodeResources(&n.Status)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "nodeSwapStatus", "capacity"), *swap.Capacity, "must be greater than zero"))
	}
	errs = append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures)...)
	return append(errs, validatePodCIDRs(n.Spec.PodCIDRs)...)
}

// validateNodeUpdate validates the changes of a node, through the main endpoint or its status.
func validateNodeUpdate(new, old *corev1.Node) field.ErrorList {
	meta := check.At(field.NewPath("metadata"))
	validateNodeAnnotations(meta.Child("annotations"), new.Annotations)
	errs := append(meta.Errors(), validateNodeResources(&new.Status)...)
	errs = append(errs, validateDeclaredFeatures(new.Status.DeclaredFeatures)...)

	p := check.At(nil)
	for i, a := range new.Status.Addresses {
		if slices.Contains(new.Status.Addresses[:i], a) {
			item := p.Child("status").Item("addresses", i)
			item.Add(field.Duplicate(item.Path(), check.Internal(a)))
		}
	}
	spec := p.Child("spec")
	if len(old.Spec.PodCIDRs) > 0 {
		for range changedPodCIDRs(new.Spec.PodCIDRs, old.Spec.PodCIDRs) {
			spec.Forbidden("podCIDRs", `node updates may not change podCIDR except from "" to valid`)
		}
	}
	if old.Spec.ProviderID != "" && new.Spec.ProviderID != old.Spec.ProviderID {
		change := "modified"
		if new.Spec.ProviderID == "" {
			change = "cleared"
		}
		spec.Invalid("providerID", nil, "field cannot be "+change+" once set")
	}
	taints := check.At(field.NewPath("metadata"))
	validateTaints(taints, "taints", new.Spec.Taints)
	p.Add(taints.Errors()...)
	if new.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		spec.Forbidden("externalID", "may not be updated")
	}
	return append(errs, p.Errors()...)
}

func changedPodCIDRs(new, old []string) int {
	if len(new) != len(old) {
		return 1
	}
	n := 0
	for i := range old {
		if new[i] != old[i] {
			n++
		}
	}
	return n
}

// taintsAnnotation held taints before they were a field. Annotations of taints and of pods to avoid must still parse.
const taintsAnnotation = "scheduler.alpha.kubernetes.io/taints"

func validateNodeAnnotations(p *check.Part, annotations map[string]string) {
	if text := annotations[taintsAnnotation]; text != "" {
		var taints []corev1.Taint
		if err := json.Unmarshal([]byte(text), &taints); err != nil {
			p.Invalid("", taintsAnnotation, err.Error())
		} else {
			validateTaints(p, taintsAnnotation, taints)
		}
	}
	if text := annotations[corev1.PreferAvoidPodsAnnotationKey]; text != "" {
		validateAvoidPods(p, text)
	}
}

func validateAvoidPods(p *check.Part, text string) {
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(text), &avoid); err != nil {
		p.Invalid("AvoidPods", corev1.PreferAvoidPodsAnnotationKey, err.Error())
		return
	}
	for i, entry := range avoid.PreferAvoidPods {
		item := p.Item(corev1.PreferAvoidPodsAnnotationKey, i)
		owner := entry.PodSignature.PodController
		switch {
		case owner == nil:
			item.Required("PodSignature", "")
		case !isTrue(owner.Controller):
			item.Child("PodSignature").Child("PodController").Invalid("Controller", false, "must point to a controller")
		}
	}
}

func validateTaints(p *check.Part, list string, taints []corev1.Taint) {
	for i, t := range taints {
		item := p.Item(list, i)
		if len(utilvalidation.IsQualifiedName(t.Key)) > 0 {
			item.Add(metav1validation.ValidateLabelName(t.Key, item.Path("key"))...)
		}
		if msgs := utilvalidation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			item.Invalid("value", t.Value, strings.Join(msgs, ";"))
		}
		if t.Effect == "" {
			item.Required("effect", "")
		} else {
			check.OneOf(item, "effect", t.Effect,
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
		}
		if slices.ContainsFunc(taints[:i], func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }) {
			err := field.Duplicate(item.Path(), check.Internal(t))
			err.Detail = "taints must be unique by key and effect pair"
			item.Add(err)
		}
	}
}

func validateNodeResources(status *corev1.NodeStatus) field.ErrorList {
	return append(validateNodeAmounts("capacity", status.Capacity), validateNodeAmounts("allocatable", status.Allocatable)...)
}

func validateNodeAmounts(part string, list corev1.ResourceList) field.ErrorList {
	var errs field.ErrorList
	for name, q := range list {
		// Nearly all amounts are whole and not negative, which suits every resource.
		if q.Sign() < 0 || q.MilliValue()%1000 != 0 {
			errs = append(errs, quantity.ForResource(string(name), q, field.NewPath("status", part, string(name)))...)
		}
	}
	sortByField(errs)
	return errs
}

func validatePodCIDRs(cidrs []string) field.ErrorList {
	if len(cidrs) == 0 {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "podCIDRs")
	for i, cidr := range cidrs {
		errs = append(errs, address.CIDR(cidr, nil, path.Index(i))...)
	}
	if len(cidrs) == 1 {
		return errs
	}
	dual, err := netutils.IsDualStackCIDRStrings(cidrs)
	if err != nil {
		errs = append(errs, field.InternalError(path, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%v", err)))
	}
	if !dual || len(cidrs) > 2 {
		errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

// validateDeclaredFeatures requires the features that a node declares to be well named, sorted and unique.
func validateDeclaredFeatures(features []string) field.ErrorList {
	p := check.At(field.NewPath("status"))
	for i, feature := range features {
		switch {
		case len(feature) > utilvalidation.DNS1123SubdomainMaxLength:
			item := p.Item("declaredFeatures", i)
			item.Invalid("", feature, fmt.Sprintf("invalid feature name %q: must be no more than %d characters",
				feature, utilvalidation.DNS1123SubdomainMaxLength))
		case !isFeatureName(feature):
			item := p.Item("declaredFeatures", i)
			item.Invalid("", feature, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with "+
				"subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", feature))
		}
		if i+1 == len(features) {
			break
		}
		switch next := features[i+1]; {
		case feature == next:
			item := p.Item("declaredFeatures", i+1)
			item.Add(field.Duplicate(item.Path(), next))
		case feature > next:
			p.Item("declaredFeatures", i+1).Invalid("", next, "list must be sorted alphabetically")
		}
	}
	return p.Errors()
}

// isFeatureName accepts letters and digits in segments that start with a letter, the first with a capital one.
func isFeatureName(name string) bool {
	start := true
	for i := range len(name) {
		c := name[i]
		upper, lower, digit := 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9'
		switch {
		case start && !upper && (!lower || i == 0):
			return false
		case c == '/':
			start = true
			continue
		case !upper && !lower && !digit:
			return false
		}
		start = false
	}
	return !start
}
