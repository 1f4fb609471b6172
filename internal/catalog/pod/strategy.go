package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

func prepareCreate(p *corev1.Pod, req catalog.Request) {
	p.Status.Phase = corev1.PodPending
	dropDisabled(&p.Spec, p.Annotations)
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(req.Now),
			Reason:  corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
	mergeLabelKeys(p)
	adoptAppArmorAnnotations(p)
	defaultPodLevelResources(p)
	p.Status.QOSClass = QOSClass(p)
}

func prepareUpdate(new, old *corev1.Pod) {
	keepPodLevelResources(new, old)
	dropDisabled(&new.Spec, new.Annotations)
}

// keepPodLevelResources restores the pod-level resources if they are missing: some clients do not know them.
func keepPodLevelResources(new, old *corev1.Pod) {
	if new.Spec.Resources == nil && old.Spec.Resources != nil {
		new.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
}

// prepareStatus restores what a status update may not change, and what an older client may have dropped.
func prepareStatus(new, old *corev1.Pod) {
	new.DeletionTimestamp = nil
	new.OwnerReferences = old.OwnerReferences
	status, before := &new.Status, &old.Status
	if status.QOSClass == "" {
		status.QOSClass = before.QOSClass
	}
	if status.ResourceClaimStatuses == nil {
		status.ResourceClaimStatuses = before.ResourceClaimStatuses
	}
	if status.ExtendedResourceClaimStatus == nil {
		status.ExtendedResourceClaimStatus = before.ExtendedResourceClaimStatus
	}
	keepObservedGenerations(status, before)
	dropDisabledStatus(status)
	dropFormerAnnotations(new.Annotations)
}

// keepObservedGenerations restores observed generations that were cleared. If there are several conditions of one type,
// the first corresponds to the first.
func keepObservedGenerations(new, old *corev1.PodStatus) {
	if new.ObservedGeneration == 0 {
		new.ObservedGeneration = old.ObservedGeneration
	}
	for i := range new.Conditions {
		if new.Conditions[i].ObservedGeneration != 0 {
			continue
		}
		nth := 0
		for _, c := range new.Conditions[:i] {
			if c.Type == new.Conditions[i].Type {
				nth++
			}
		}
		for _, c := range old.Conditions {
			if c.Type != new.Conditions[i].Type {
				continue
			}
			if nth == 0 {
				new.Conditions[i].ObservedGeneration = c.ObservedGeneration
				break
			}
			nth--
		}
	}
}

// prepareEphemeralContainers discards every change except of the ephemeral containers.
func prepareEphemeralContainers(new, old *corev1.Pod) {
	ephemeral := new.Spec.EphemeralContainers
	new.Spec, new.Status = old.Spec, old.Status
	new.Spec.EphemeralContainers = ephemeral
	metav1.ResetObjectMetaForStatus(&new.ObjectMeta, &old.ObjectMeta)
	for i := range ephemeral {
		dropDisabledFromContainer(plain(&ephemeral[i]))
	}
}

// prepareResize discards every change except of resources and resize policies. If containers were added, removed or renamed
// it keeps them, and validation refuses them.
func prepareResize(new, old *corev1.Pod) {
	if len(new.Spec.Containers) == len(old.Spec.Containers) && len(new.Spec.InitContainers) == len(old.Spec.InitContainers) {
		resources := new.Spec.Resources
		regular, initial := resized(new.Spec.Containers, old.Spec.Containers), resized(new.Spec.InitContainers, old.Spec.InitContainers)
		new.Spec, new.Status = old.Spec, old.Status
		new.Spec.Resources, new.Spec.Containers, new.Spec.InitContainers = resources, regular, initial
		metav1.ResetObjectMetaForStatus(&new.ObjectMeta, &old.ObjectMeta)
	}
	keepPodLevelResources(new, old)
	defaultPodLevelResources(new)
	dropDisabled(&new.Spec, new.Annotations)
}

// resized returns the old containers with the resources of the new.
func resized(new, old []corev1.Container) []corev1.Container {
	if len(new) == 0 {
		return new
	}
	merged := append([]corev1.Container(nil), old...)
	for i := range new {
		if new[i].Name != old[i].Name {
			return new
		}
		merged[i].Resources, merged[i].ResizePolicy = new[i].Resources, new[i].ResizePolicy
	}
	return merged
}

// mergeLabelKeys merges the pod's values of matchLabelKeys and mismatchLabelKeys into the selectors of the same term, so
// that a scheduler need not know these fields.
func mergeLabelKeys(p *corev1.Pod) {
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		mergePodLabels(c.LabelSelector, metav1.LabelSelectorOpIn, c.MatchLabelKeys, p.Labels)
	}
	merge := func(t *corev1.PodAffinityTerm) {
		mergePodLabels(t.LabelSelector, metav1.LabelSelectorOpIn, t.MatchLabelKeys, p.Labels)
		mergePodLabels(t.LabelSelector, metav1.LabelSelectorOpNotIn, t.MismatchLabelKeys, p.Labels)
	}
	required, preferred := affinityTerms(p.Spec.Affinity)
	for _, terms := range required {
		for i := range terms {
			merge(&terms[i])
		}
	}
	for _, terms := range preferred {
		for i := range terms {
			merge(&terms[i].PodAffinityTerm)
		}
	}
}

// affinityTerms returns the terms of pod affinity and of pod anti-affinity, in this order.
func affinityTerms(a *corev1.Affinity) (required [2][]corev1.PodAffinityTerm, preferred [2][]corev1.WeightedPodAffinityTerm) {
	if a != nil && a.PodAffinity != nil {
		required[0] = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		preferred[0] = a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	if a != nil && a.PodAntiAffinity != nil {
		required[1] = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		preferred[1] = a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return required, preferred
}

func mergePodLabels(s *metav1.LabelSelector, op metav1.LabelSelectorOperator, keys []string, labels map[string]string) {
	if s == nil { // a nil selector selects nothing, and must not change that
		return
	}
	for _, key := range keys {
		if value, found := labels[key]; found {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
		}
	}
}

// adoptAppArmorAnnotations copies AppArmor profiles from annotations, which are older, into the field.
func adoptAppArmorAnnotations(p *corev1.Pod) {
	if len(p.Annotations) == 0 || p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	for _, c := range containers(&p.Spec) {
		annotation, found := p.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if !found || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := appArmorProfile(annotation)
		if profile == nil || apiequality.Semantic.DeepEqual(profile, podAppArmorProfile(&p.Spec)) {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	}
}

func podAppArmorProfile(spec *corev1.PodSpec) *corev1.AppArmorProfile {
	if spec.SecurityContext == nil {
		return nil
	}
	return spec.SecurityContext.AppArmorProfile
}

// appArmorProfile returns the profile of an annotation, nil if it is invalid.
func appArmorProfile(annotation string) *corev1.AppArmorProfile {
	profile := namedAppArmorProfile(annotation)
	if profile == nil {
		return nil
	}
	p := check.At(nil)
	checkAppArmor(p, profile)
	if len(p.Errors()) > 0 {
		return nil
	}
	return profile
}

func namedAppArmorProfile(annotation string) *corev1.AppArmorProfile {
	switch annotation {
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	}
	name, found := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	if !found || name == "" {
		return nil
	}
	return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
}
