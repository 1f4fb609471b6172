package batch

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // a cron job may name any time zone, whatever is installed

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/workload"
)

var CronJob = catalog.Resource[batchv1.CronJob]{
	Group: "batch", Version: "v1", Kind: "CronJob", Plural: "cronjobs",
	Short: []string{"cj"}, Categories: []string{"all"}, Namespaced: true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultCronJob,
	PrepareCreate:       func(c *batchv1.CronJob, _ catalog.Request) { dropDisabled(&c.Spec.JobTemplate.Spec) },
	PrepareUpdate:       func(new, _ *batchv1.CronJob) { dropDisabled(&new.Spec.JobTemplate.Spec) },
	Changed:             catalog.SpecChanged[batchv1.CronJob],
	Validate:            validateCronJob,
	ValidateUpdate: func(new, old *batchv1.CronJob) field.ErrorList {
		return validateCronJobSpec(&new.Spec, &old.Spec).Errors()
	},
	Warnings: cronJobWarnings,
	Status:   &catalog.Edit[batchv1.CronJob]{},
	Columns:  cronJobColumns(),
	Complete: true,
}

func defaultCronJob(c *batchv1.CronJob) {
	s := &c.Spec
	if s.ConcurrencyPolicy == "" {
		s.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	fill(&s.Suspend, false)
	fill(&s.SuccessfulJobsHistoryLimit, 3)
	fill(&s.FailedJobsHistoryLimit, 1)
	defaultFailurePolicy(&s.JobTemplate.Spec)
	pod.DefaultTemplate(&s.JobTemplate.Spec.Template)
}

// maxCronJobName is the longest name of a cron job: its jobs have names of up to 63 characters with the time appended.
const maxCronJobName = 63 - len("-1234567890")

func validateCronJob(c *batchv1.CronJob) field.ErrorList {
	spec := validateCronJobSpec(&c.Spec, nil)
	if len(c.Name) > maxCronJobName {
		spec.Add(field.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters"))
	}
	return spec.Errors()
}

func validateCronJobSpec(s, old *batchv1.CronJobSpec) *check.Part {
	spec := check.At(field.NewPath("spec"))
	var oldTemplate *corev1.PodTemplateSpec
	zoneInSchedule, zoneKept := false, false
	if old != nil {
		oldTemplate = &old.JobTemplate.Spec.Template
		zoneInSchedule = strings.Contains(old.Schedule, "TZ")
		zoneKept = valueOr(s.TimeZone, "") == valueOr(old.TimeZone, "") && (s.TimeZone == nil) == (old.TimeZone == nil)
	}
	if s.Schedule != "" {
		validateSchedule(spec, s, zoneInSchedule)
	}
	check.NonNegativeIfSet(spec, "startingDeadlineSeconds", s.StartingDeadlineSeconds)
	if !zoneKept && s.TimeZone != nil {
		validateTimeZone(spec, *s.TimeZone)
	}
	check.OneOf(spec, "concurrencyPolicy", s.ConcurrencyPolicy,
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
	job := spec.Child("jobTemplate").Child("spec")
	validateJobSpec(job, &s.JobTemplate.Spec, oldTemplate)
	if selector := s.JobTemplate.Spec.Selector; selector != nil {
		job.Invalid("selector", selector, "`selector` will be auto-generated")
	}
	if manual := s.JobTemplate.Spec.ManualSelector; manual != nil && *manual {
		job.Add(field.NotSupported(job.Path("manualSelector"), manual, []string{"nil", "false"}))
	}
	check.NonNegativeIfSet(spec, "successfulJobsHistoryLimit", s.SuccessfulJobsHistoryLimit)
	check.NonNegativeIfSet(spec, "failedJobsHistoryLimit", s.FailedJobsHistoryLimit)
	spec.Later().Present("schedule", s.Schedule != "", "")
	return spec
}

func validateSchedule(spec *check.Part, s *batchv1.CronJobSpec, zoneAllowed bool) {
	if err := parseSchedule(s.Schedule); err != nil {
		spec.Invalid("schedule", s.Schedule, err.Error())
	}
	if !strings.Contains(s.Schedule, "TZ") {
		return
	}
	if !zoneAllowed {
		spec.Invalid("schedule", s.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	} else if s.TimeZone != nil {
		spec.Invalid("schedule", s.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
	}
}

// parseSchedule recovers from panics of the parser on some malformed schedules, such as "TZ=0".
func parseSchedule(schedule string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	_, err = cron.ParseStandard(schedule)
	return err
}

// timeZonePart matches a segment of a time zone's name.
var timeZonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

func validateTimeZone(spec *check.Part, zone string) {
	if zone == "" {
		spec.Invalid("timeZone", zone, "timeZone must be nil or non-empty string")
		return
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || !timeZonePart.MatchString(part) {
			spec.Invalid("timeZone", zone, "unknown time zone "+zone)
			return
		}
	}
	if strings.EqualFold(zone, "Local") {
		spec.Invalid("timeZone", zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(zone); err != nil {
		spec.Invalid("timeZone", zone, err.Error())
	}
}

func cronJobWarnings(new, old *batchv1.CronJob) []string {
	job := field.NewPath("spec", "jobTemplate", "spec")
	if old == nil {
		return append(workload.NameWarnings(new.Name), jobSpecWarnings(&new.Spec.JobTemplate.Spec, nil, job)...)
	}
	var warnings []string
	if new.Generation != old.Generation {
		warnings = jobSpecWarnings(&new.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec.Template, job)
	}
	if strings.Contains(new.Spec.Schedule, "TZ") {
		warnings = append(warnings, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, "+
			"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return warnings
}

func cronJobColumns() []catalog.Column[batchv1.CronJob] {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	template := func(c *batchv1.CronJob) *corev1.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template }
	return []catalog.Column[batchv1.CronJob]{
		catalog.NameColumn[batchv1.CronJob](),
		{Name: "Schedule", Description: spec["schedule"],
			Cell: func(c *batchv1.CronJob, _ time.Time) any { return c.Spec.Schedule }},
		{Name: "Timezone", Description: spec["timeZone"],
			Cell: func(c *batchv1.CronJob, _ time.Time) any { return valueOr(c.Spec.TimeZone, "<none>") }},
		{Name: "Suspend", Type: "boolean", Description: spec["suspend"],
			Cell: func(c *batchv1.CronJob, _ time.Time) any { return suspended(c.Spec.Suspend) }},
		{Name: "Active", Type: "integer", Description: status["active"],
			Cell: func(c *batchv1.CronJob, _ time.Time) any { return int64(len(c.Status.Active)) }},
		{Name: "Last Schedule", Description: status["lastScheduleTime"], Timed: true,
			Cell: func(c *batchv1.CronJob, now time.Time) any {
				if c.Status.LastScheduleTime == nil {
					return "<none>"
				}
				return catalog.Since(*c.Status.LastScheduleTime, now)
			}},
		catalog.AgeColumn[batchv1.CronJob](),
		workload.Containers(template),
		workload.Images(template),
		workload.Selector(batchv1.JobSpec{}.SwaggerDoc()["selector"],
			func(c *batchv1.CronJob) *metav1.LabelSelector { return c.Spec.JobTemplate.Spec.Selector }),
	}
}

func suspended(s *bool) string {
	switch {
	case s == nil:
		return "<unset>"
	case *s:
		return "True"
	}
	return "False"
}
