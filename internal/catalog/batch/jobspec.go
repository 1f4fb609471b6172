package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/workload"
)

// Limits that keep the lists of completed and failed indexes in a job's status small enough to store.
const (
	maxIndexedParallelism = 100_000
	maxFailedIndexes      = 100_000

	manyCompletions         = 100_000 // above this number, with a backoff limit per index, the following apply
	maxParallelismOfMany    = 10_000
	maxFailedIndexesOfMany  = 10_000
	maxManagedBy            = 63
	maxIndexesInSuccessRule = 64 * 1024
)

func validateJob(j *batchv1.Job) field.ErrorList {
	spec := check.At(field.NewPath("spec"))
	validateGeneratedSelector(spec, j)
	validateJobSpec(spec, &j.Spec, nil)
	validateJobSelector(spec, &j.Spec, metav1validation.LabelSelectorValidationOptions{})
	validateHostnames(spec, j)
	return spec.Errors()
}

// validateGeneratedSelector refuses labels of the user that conflict with the generated ones.
func validateGeneratedSelector(spec *check.Part, j *batchv1.Job) {
	if valueOr(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return
	}
	want := generatedLabels(j)
	for _, label := range []string{legacyControllerUID, legacyJobName, batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
		have, found := j.Spec.Template.Labels[label]
		path := func() *field.Path { return spec.Path("template", "metadata", "labels").Key(label) }
		switch {
		case !found:
			spec.Add(field.Required(path(), "must be '"+want[label]+"'"))
		case have != want[label]:
			spec.Add(field.Invalid(path(), j.Spec.Template.Labels, "must be '"+want[label]+"'"))
		}
	}
	if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !s.Matches(labels.Set(want)) {
		spec.Invalid("selector", j.Spec.Selector, "`selector` not auto-generated")
	}
}

// validateJobSpec applies the rules that jobs and the job templates of cron jobs have in common.
func validateJobSpec(spec *check.Part, s *batchv1.JobSpec, oldTemplate *corev1.PodTemplateSpec) {
	check.NonNegativeIfSet(spec, "parallelism", s.Parallelism)
	check.NonNegativeIfSet(spec, "completions", s.Completions)
	check.NonNegativeIfSet(spec, "activeDeadlineSeconds", s.ActiveDeadlineSeconds)
	check.NonNegativeIfSet(spec, "backoffLimit", s.BackoffLimit)
	check.NonNegativeIfSet(spec, "ttlSecondsAfterFinished", s.TTLSecondsAfterFinished)
	check.NonNegativeIfSet(spec, "backoffLimitPerIndex", s.BackoffLimitPerIndex)
	check.NonNegativeIfSet(spec, "maxFailedIndexes", s.MaxFailedIndexes)
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		spec.Required("backoffLimitPerIndex", "when maxFailedIndexes is specified")
	}
	if s.ManagedBy != nil {
		spec.Add(validation.IsDomainPrefixedPath(spec.Path("managedBy"), *s.ManagedBy)...)
		if len(*s.ManagedBy) > maxManagedBy {
			spec.Add(field.TooLong(spec.Path("managedBy"), "", maxManagedBy))
		}
	}
	validateCompletionMode(spec, s)
	if s.PodFailurePolicy != nil {
		validateFailurePolicy(spec.Child("podFailurePolicy"), s)
	}
	if s.SuccessPolicy != nil {
		if isIndexed(s) {
			validateSuccessPolicy(spec.Child("successPolicy"), s)
		} else {
			spec.Invalid("successPolicy", check.Internal(s.SuccessPolicy), "requires indexed completion mode")
		}
	}
	if p := s.PodReplacementPolicy; p != nil {
		if s.PodFailurePolicy != nil {
			check.OneOf(spec, "podReplacementPolicy", *p, batchv1.Failed)
		} else {
			check.OneOf(spec, "podReplacementPolicy", *p, batchv1.Failed, batchv1.TerminatingOrFailed)
		}
	}
	spec.Add(pod.ValidateTemplate(&s.Template, oldTemplate, spec.Path("template"))...)
	validateJobRestartPolicy(spec, s)
}

func validateCompletionMode(spec *check.Part, s *batchv1.JobSpec) {
	switch valueOr(s.CompletionMode, batchv1.NonIndexedCompletion) {
	case batchv1.IndexedCompletion:
		validateIndexedJob(spec, s)
	case batchv1.NonIndexedCompletion:
		if s.BackoffLimitPerIndex != nil {
			spec.Invalid("backoffLimitPerIndex", *s.BackoffLimitPerIndex, "requires indexed completion mode")
		}
		if s.MaxFailedIndexes != nil {
			spec.Invalid("maxFailedIndexes", *s.MaxFailedIndexes, "requires indexed completion mode")
		}
	default:
		check.OneOf(spec, "completionMode", *s.CompletionMode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
	}
}

func validateIndexedJob(spec *check.Part, s *batchv1.JobSpec) {
	if s.Completions == nil {
		spec.Required("completions", "when completion mode is Indexed")
	}
	atMost := func(name string, value *int32, limit int32, detail string) {
		if value != nil {
			check.AtMost(spec, name, *value, limit, detail)
		}
	}
	atMost("parallelism", s.Parallelism, maxIndexedParallelism, "must be less than or equal to 100000 when completion mode is Indexed")
	if s.Completions != nil {
		atMost("maxFailedIndexes", s.MaxFailedIndexes, *s.Completions, "must be less than or equal to completions")
	}
	atMost("maxFailedIndexes", s.MaxFailedIndexes, maxFailedIndexes, "must be less than or equal to 100000")
	if valueOr(s.Completions, 0) <= manyCompletions || s.BackoffLimitPerIndex == nil {
		return
	}
	if s.MaxFailedIndexes == nil {
		spec.Required("maxFailedIndexes", "must be specified when completions is above 100000")
	}
	const detail = "must be less than or equal to %d when completions are above 100000 and used with backoff limit per index"
	atMost("parallelism", s.Parallelism, maxParallelismOfMany, fmt.Sprintf(detail, maxParallelismOfMany))
	atMost("maxFailedIndexes", s.MaxFailedIndexes, maxFailedIndexesOfMany, fmt.Sprintf(detail, maxFailedIndexesOfMany))
}

func validateJobRestartPolicy(spec *check.Part, s *batchv1.JobSpec) {
	path := func() *field.Path { return spec.Path("template", "spec", "restartPolicy") }
	switch policy := s.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyNever:
	case corev1.RestartPolicyOnFailure:
		if s.PodFailurePolicy != nil {
			spec.Add(field.Invalid(path(), policy, `only "Never" is supported when podFailurePolicy is specified`))
		}
	case corev1.RestartPolicyAlways, "":
		// A missing policy was defaulted to Always.
		spec.Add(field.Required(path(), `valid values: "OnFailure", "Never"`))
	default:
		spec.Add(field.NotSupported(path(), policy, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	}
}

func validateJobSelector(spec *check.Part, s *batchv1.JobSpec, opts metav1validation.LabelSelectorValidationOptions) {
	spec.Present("selector", s.Selector != nil, "")
	spec.Selector("selector", s.Selector, opts)
	if matches, err := workload.Matches(s.Selector, &s.Template); err == nil && !matches {
		workload.Mismatch(spec, &s.Template)
	}
}

// validateHostnames checks that the host name of the pod with the highest index, which is the longest, is valid.
func validateHostnames(spec *check.Part, j *batchv1.Job) {
	n := valueOr(j.Spec.Completions, 0)
	if !isIndexed(&j.Spec) || n <= 0 {
		return
	}
	hostname := fmt.Sprintf("%s-%d", j.Name, n-1)
	if len(validation.IsDNS1123Label(hostname)) > 0 {
		spec.Add(field.Invalid(field.NewPath("metadata", "name"), j.Name,
			"will not able to create pod with invalid DNS label: "+hostname))
	}
}
