package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

func validateJobUpdate(new, old *batchv1.Job) field.ErrorList {
	spec := check.At(field.NewPath("spec"))
	n, o := &new.Spec, &old.Spec
	validateJobSpec(spec, n, &o.Template)
	validateJobSelector(spec, n, metav1validation.LabelSelectorValidationOptions{
		AllowInvalidLabelValueInSelector: metav1validation.LabelSelectorHasInvalidLabelValue(o.Selector)})
	validateCompletionsUpdate(spec, n, o)
	spec.Immutable("selector", n.Selector, o.Selector)
	validateJobTemplateUpdate(spec, &n.Template, old)
	spec.Immutable("completionMode", n.CompletionMode, o.CompletionMode)
	spec.Immutable("podFailurePolicy", n.PodFailurePolicy, o.PodFailurePolicy)
	spec.Immutable("backoffLimitPerIndex", n.BackoffLimitPerIndex, o.BackoffLimitPerIndex)
	spec.Immutable("managedBy", n.ManagedBy, o.ManagedBy)
	spec.Immutable("successPolicy", n.SuccessPolicy, o.SuccessPolicy)
	validateHostnames(spec, new)
	return spec.Errors()
}

// validateCompletionsUpdate allows an indexed job to be scaled if all its pods run at once.
func validateCompletionsUpdate(spec *check.Part, new, old *batchv1.JobSpec) {
	if !isIndexed(new) {
		spec.Immutable("completions", new.Completions, old.Completions)
		return
	}
	if new.Completions == nil || apiequality.Semantic.DeepEqual(new.Completions, old.Completions) {
		return
	}
	if *new.Completions != valueOr(new.Parallelism, 0) {
		spec.Invalid("completions", new.Completions, "can only be modified in tandem with spec.parallelism")
	}
}

// validateJobTemplateUpdate allows scheduling directives and resources of the template to change while there are no pods: as long as the job is
// suspended, and the controller has stopped its pods.
func validateJobTemplateUpdate(spec *check.Part, new *corev1.PodTemplateSpec, old *batchv1.Job) {
	if !isFullySuspended(old) {
		spec.Immutable("template", new, &old.Spec.Template)
		return
	}
	allowed := old.Spec.Template.Spec
	allowed.Affinity = withNodeAffinity(allowed.Affinity, new.Spec.Affinity)
	allowed.NodeSelector = new.Spec.NodeSelector
	allowed.Tolerations = new.Spec.Tolerations
	allowed.SchedulingGates = new.Spec.SchedulingGates
	allowed.Containers = withResources(allowed.Containers, new.Spec.Containers)
	allowed.InitContainers = withResources(allowed.InitContainers, new.Spec.InitContainers)
	spec.Immutable("template.spec", new.Spec, allowed)
}

func isFullySuspended(j *batchv1.Job) bool {
	return valueOr(j.Spec.Suspend, false) && j.Status.Active == 0 &&
		(j.Status.StartTime == nil || has(j, batchv1.JobSuspended, corev1.ConditionTrue))
}

// withNodeAffinity returns the old affinity with the node affinity of the new.
func withNodeAffinity(old, new *corev1.Affinity) *corev1.Affinity {
	var merged corev1.Affinity
	if old != nil {
		merged = *old
	}
	merged.NodeAffinity = nil
	if new != nil {
		merged.NodeAffinity = new.NodeAffinity
	} else if merged == (corev1.Affinity{}) {
		return nil
	}
	return &merged
}

// withResources returns the old containers with the resources of the new ones of the same name and index.
func withResources(old, new []corev1.Container) []corev1.Container {
	if len(old) != len(new) {
		return old
	}
	merged := append([]corev1.Container(nil), old...)
	for i := range merged {
		if merged[i].Name == new[i].Name {
			merged[i].Resources = new[i].Resources
		}
	}
	return merged
}
