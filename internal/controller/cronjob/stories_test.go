package cronjob

import (
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: prepare, Show: show})
}

// prepare sets on CronJobs what the API server sets, and on their Jobs the annotation of their start, which their name has too.
func prepare(obj controller.Object) {
	switch o := obj.(type) {
	case *batchv1.CronJob:
		if o.Spec.ConcurrencyPolicy == "" {
			o.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
		}
		if o.Spec.SuccessfulJobsHistoryLimit == nil {
			o.Spec.SuccessfulJobsHistoryLimit = new(int32(3))
		}
		if o.Spec.FailedJobsHistoryLimit == nil {
			o.Spec.FailedJobsHistoryLimit = new(int32(1))
		}
		for i, ref := range o.Status.Active {
			o.Status.Active[i] = corev1.ObjectReference{Kind: "Job", Namespace: o.Namespace, Name: ref.Name, UID: types.UID("uid-of-" + ref.Name)}
		}
	case *batchv1.Job:
		if minute, err := strconv.ParseInt(o.Name[strings.LastIndex(o.Name, "-")+1:], 10, 64); err == nil {
			o.Annotations = map[string]string{batchv1.CronJobScheduledTimestampAnnotation: time.Unix(minute*60, 0).UTC().Format(time.RFC3339)}
		}
	}
}

// show prints what is particular about new Jobs.
func show(a controller.Action) string {
	verb, _, obj, ok := controller.Written(a)
	if job, isJob := obj.(*batchv1.Job); ok && isJob && verb == "create" {
		return strings.TrimPrefix(batchv1.CronJobScheduledTimestampAnnotation, "batch.kubernetes.io/") + ": " + job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	}
	return ""
}
