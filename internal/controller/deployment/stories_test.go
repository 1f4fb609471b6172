package deployment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: prepare, Show: show})
}

// prepare completes Deployments as the API server would, and gives ReplicaSets the labels and status of a reconciled set.
func prepare(obj controller.Object) {
	app := map[string]string{"app": "web"}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		fill(&o.Spec.Selector, metav1.LabelSelector{MatchLabels: app})
		fill(&o.Spec.Replicas, 1)
		fill(&o.Spec.RevisionHistoryLimit, 10)
		fill(&o.Spec.ProgressDeadlineSeconds, 600)
		o.Generation = max(o.Generation, 1)
		o.Spec.Template.Labels = app
		if o.Spec.Strategy.Type == "" {
			o.Spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
		}
		if o.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			fill(&o.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			fill(&o.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
			fill(&o.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		}
	case *appsv1.ReplicaSet:
		if o.Labels == nil {
			o.Labels = app
		}
		o.Spec.Template.Labels = map[string]string{"app": "web", hashLabel: o.Name}
		o.Generation = max(o.Generation, 1)
		if o.Status.ObservedGeneration == 0 {
			o.Status.ObservedGeneration = o.Generation
		}
		o.Status.ReadyReplicas = max(o.Status.ReadyReplicas, o.Status.AvailableReplicas)
		o.Status.Replicas = max(o.Status.Replicas, o.Status.ReadyReplicas)
		fill(&o.Status.TerminatingReplicas, 0)
	}
}

func fill[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

// show prints a written ReplicaSet, and the revision that is written with a Deployment's status.
func show(a controller.Action) string {
	verb, subresource, obj, _ := controller.Written(a)
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		if verb == "create" || verb == "update" {
			image := o.Spec.Template.Spec.Containers[0].Image
			return fmt.Sprintf("image=%s replicas=%d minReadySeconds=%d\n%s", image, *o.Spec.Replicas, o.Spec.MinReadySeconds, annotations(o.Annotations))
		}
	case *appsv1.Deployment:
		if subresource == "status" {
			return annotations(o.Annotations) + status(&o.Status)
		}
		return fmt.Sprintf("image=%s\n%s", o.Spec.Template.Spec.Containers[0].Image, annotations(o.Annotations))
	}
	return ""
}

// status prints a line of counts, and one for each condition with its lastTransitionTime and, if it differs, its lastUpdateTime.
func status(s *appsv1.DeploymentStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "replicas=%d updated=%d ready=%d available=%d unavailable=%d terminating=%d observedGeneration=%d",
		s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas, ptr.Deref(s.TerminatingReplicas, -1), s.ObservedGeneration)
	if s.CollisionCount != nil {
		fmt.Fprintf(&b, " collisions=%d", *s.CollisionCount)
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, "\n%s %s %s at %s", c.Type, c.Status, c.Reason, since(c.LastTransitionTime))
		if !c.LastUpdateTime.Equal(&c.LastTransitionTime) {
			fmt.Fprintf(&b, ", updated at %s", since(c.LastUpdateTime))
		}
		fmt.Fprintf(&b, ": %s", c.Message)
	}
	return b.String()
}

func since(t metav1.Time) string {
	if t.IsZero() {
		return "?"
	}
	return t.Sub(stories.Epoch).String()
}

func annotations(all map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		list = append(list, strings.TrimPrefix(k, "deployment.kubernetes.io/")+"="+all[k])
	}
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, " ") + "\n"
}
