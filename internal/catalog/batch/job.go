package batch

import (
	"fmt"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/workload"
)

var Job = catalog.Resource[batchv1.Job]{
	Group: "batch", Version: "v1", Kind: "Job", Plural: "jobs", Categories: []string{"all"}, Namespaced: true,
	Deletion: catalog.Deletion[batchv1.Job]{Warnings: func(o *metav1.DeleteOptions) []string {
		if o.PropagationPolicy != nil || o.OrphanDependents != nil {
			return nil
		}
		return []string{"child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"}
	}},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	OrphanByDefault:     true,
	Default:             defaultJob,
	PrepareCreate:       prepareJob,
	PrepareUpdate:       func(new, _ *batchv1.Job) { dropDisabled(&new.Spec) },
	Changed:             catalog.SpecChanged[batchv1.Job],
	Validate:            validateJob,
	ValidateUpdate:      validateJobUpdate,
	Warnings: func(new, old *batchv1.Job) []string {
		path := field.NewPath("spec")
		if old == nil {
			return append(workload.NameWarnings(new.Name), jobSpecWarnings(&new.Spec, nil, path)...)
		}
		if new.Generation == old.Generation {
			return nil
		}
		return jobSpecWarnings(&new.Spec, &old.Spec.Template, path)
	},
	Status: &catalog.Edit[batchv1.Job]{ValidateUpdate: validateJobStatus},
	Fields: []catalog.Field[batchv1.Job]{{Name: "status.successful",
		Value: func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) }}},
	Columns:  jobColumns(),
	Complete: true,
}

func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	pod.DefaultTemplate(&s.Template)
	defaultFailurePolicy(s)
	if s.Completions == nil && s.Parallelism == nil {
		fill(&s.Completions, 1)
	}
	fill(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		fill(&s.BackoffLimit, math.MaxInt32)
	}
	fill(&s.BackoffLimit, 6)
	defaultJobLabels(j)
	fill(&s.CompletionMode, batchv1.NonIndexedCompletion)
	fill(&s.Suspend, false)
	if s.PodFailurePolicy != nil {
		fill(&s.PodReplacementPolicy, batchv1.Failed)
	}
	fill(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	fill(&s.ManualSelector, false)
}

// defaultJobLabels gives a job the labels of its template, if it has none. Both share one map until they are stored:
// labels that are then added to the template are on the job as well, as upstream.
func defaultJobLabels(j *batchv1.Job) {
	if len(j.Labels) == 0 && j.Spec.Template.Labels != nil {
		j.Labels = j.Spec.Template.Labels
	}
}

func defaultFailurePolicy(s *batchv1.JobSpec) {
	if s.PodFailurePolicy == nil {
		return
	}
	for _, rule := range s.PodFailurePolicy.Rules {
		for i := range rule.OnPodConditions {
			if rule.OnPodConditions[i].Status == "" {
				rule.OnPodConditions[i].Status = corev1.ConditionTrue
			}
		}
	}
}

// dropDisabled clears the fields of features that are off by default.
func dropDisabled(s *batchv1.JobSpec) {
	s.Scheduling = nil
	pod.PrepareTemplate(&s.Template)
}

func prepareJob(j *batchv1.Job, _ catalog.Request) {
	dropDisabled(&j.Spec)
	if *j.Spec.ManualSelector {
		return
	}
	generateSelector(j)
	// Upstream does this when it reads the job back. A name that cannot be a label is about to be refused, on account of the
	// template and not of the job.
	if len(utilvalidation.IsValidLabelValue(j.Name)) == 0 {
		defaultJobLabels(j)
	}
}

// generateSelector labels the template with the job's name and uid and selects by uid, which no other workload can
// have by mistake. It does not overwrite the user's labels: validation refuses them if they do not match.
func generateSelector(j *batchv1.Job) {
	t := &j.Spec.Template
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	for label, value := range generatedLabels(j) {
		if _, set := t.Labels[label]; !set {
			t.Labels[label] = value
		}
	}
	fill(&j.Spec.Selector, metav1.LabelSelector{})
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, set := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !set {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
}

// The former names of the labels, without a prefix, which pods still have.
const (
	legacyJobName       = "job-name"
	legacyControllerUID = "controller-uid"
)

func generatedLabels(j *batchv1.Job) map[string]string {
	return map[string]string{
		legacyJobName: j.Name, batchv1.JobNameLabel: j.Name,
		legacyControllerUID: string(j.UID), batchv1.ControllerUidLabel: string(j.UID),
	}
}

func jobSpecWarnings(s *batchv1.JobSpec, oldTemplate *corev1.PodTemplateSpec, path *field.Path) []string {
	var warnings []string
	if isIndexed(s) && valueOr(s.Completions, 0) > manyCompletions && valueOr(s.Parallelism, 0) > maxParallelismOfMany {
		warnings = append(warnings, path.String()+": In Indexed Jobs with a number of completions higher than 10^5 and a "+
			"parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(warnings, pod.TemplateWarnings(&s.Template, oldTemplate, path.Child("template"))...)
}

func isIndexed(s *batchv1.JobSpec) bool {
	return valueOr(s.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

func jobColumns() []catalog.Column[batchv1.Job] {
	template := func(j *batchv1.Job) *corev1.PodTemplateSpec { return &j.Spec.Template }
	return []catalog.Column[batchv1.Job]{
		catalog.NameColumn[batchv1.Job](),
		{Name: "Status", Description: "Status of the job.", Cell: func(j *batchv1.Job, _ time.Time) any { return jobState(j) }},
		{Name: "Completions", Description: batchv1.JobStatus{}.SwaggerDoc()["succeeded"],
			Cell: func(j *batchv1.Job, _ time.Time) any { return completions(j) }},
		{Name: "Duration", Description: "Time required to complete the job.", Timed: true, Cell: jobDuration},
		catalog.AgeColumn[batchv1.Job](),
		workload.Containers(template),
		workload.Images(template),
		workload.Selector(batchv1.JobSpec{}.SwaggerDoc()["selector"],
			func(j *batchv1.Job) *metav1.LabelSelector { return j.Spec.Selector }),
	}
}

func jobState(j *batchv1.Job) string {
	is := func(t batchv1.JobConditionType) bool {
		for _, c := range j.Status.Conditions {
			if c.Type == t {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	switch {
	case is(batchv1.JobComplete):
		return "Complete"
	case is(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case is(batchv1.JobSuspended):
		return "Suspended"
	case is(batchv1.JobFailureTarget):
		return "FailureTarget"
	case is(batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func completions(j *batchv1.Job) string {
	if want := j.Spec.Completions; want != nil {
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *want)
	}
	if p := valueOr(j.Spec.Parallelism, 0); p > 1 {
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, p)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job, now time.Time) any {
	if j.Status.StartTime == nil {
		return ""
	}
	if end := j.Status.CompletionTime; end != nil {
		now = end.Time
	}
	return duration.HumanDuration(now.Sub(j.Status.StartTime.Time))
}
