package apps

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/workload"
)

var Deployment = catalog.Resource[appsv1.Deployment]{
	Group: "apps", Version: "v1", Kind: "Deployment", Plural: "deployments",
	Short: []string{"deploy"}, Categories: []string{"all"}, Namespaced: true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultDeployment,
	PrepareCreate:       func(d *appsv1.Deployment, _ catalog.Request) { pod.PrepareTemplate(&d.Spec.Template) },
	PrepareUpdate:       func(new, _ *appsv1.Deployment) { pod.PrepareTemplate(&new.Spec.Template) },
	// Annotations count, because they are copied to the deployment's replica sets.
	Changed: func(new, old *appsv1.Deployment) bool {
		return !maps.Equal(new.Annotations, old.Annotations) || !apiequality.Semantic.DeepEqual(&new.Spec, &old.Spec)
	},
	Validate: func(d *appsv1.Deployment) field.ErrorList {
		return validateDeployment(d, nil).Errors()
	},
	ValidateUpdate: func(new, old *appsv1.Deployment) field.ErrorList {
		spec := validateDeployment(new, &old.Spec.Template)
		spec.Immutable("selector", new.Spec.Selector, old.Spec.Selector)
		return spec.Errors()
	},
	Warnings: deploymentWarnings,
	Status: &catalog.Edit[appsv1.Deployment]{
		PrepareUpdate: func(new, old *appsv1.Deployment) {
			new.Labels = old.Labels
			keepAnnotation(new, old, appsv1.DeprecatedRollbackTo)
		},
		ResetFields:    []string{"metadata.labels"},
		ValidateUpdate: validateDeploymentStatus,
	},
	Scale: &catalog.Scale[appsv1.Deployment]{
		Get: func(d *appsv1.Deployment) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return scaleOf(d.Spec.Replicas, d.Status.Replicas, d.Spec.Selector)
		},
		Set: func(d *appsv1.Deployment, replicas int32) { d.Spec.Replicas = &replicas },
	},
	Columns:  deploymentColumns(),
	Complete: true,
}

func defaultDeployment(d *appsv1.Deployment) {
	s := &d.Spec
	pod.DefaultTemplate(&s.Template)
	fill(&s.Replicas, 1)
	if s.Strategy.Type == "" {
		s.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		fill(&s.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		fill(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		fill(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	fill(&s.RevisionHistoryLimit, 10)
	fill(&s.ProgressDeadlineSeconds, 600)
	defaultRollbackTo(d)
}

// defaultRollbackTo formats the revision to roll back to as a plain number. It was a field before apps/v1 and is an annotation now,
// which upstream still converts to a number.
func defaultRollbackTo(d *appsv1.Deployment) {
	text, ok := d.Annotations[appsv1.DeprecatedRollbackTo]
	if !ok {
		return
	}
	if text == "" {
		delete(d.Annotations, appsv1.DeprecatedRollbackTo)
	} else if revision, err := strconv.ParseInt(text, 10, 64); err == nil {
		d.Annotations[appsv1.DeprecatedRollbackTo] = strconv.FormatInt(revision, 10)
	}
}

func validateDeployment(d *appsv1.Deployment, oldTemplate *corev1.PodTemplateSpec) *check.Part {
	s := &d.Spec
	spec := check.At(field.NewPath("spec"))
	check.NonNegativeIfSet(spec, "replicas", s.Replicas)
	validateSelectedTemplate(spec, s.Selector, &s.Template, oldTemplate)
	validateDeploymentStrategy(spec.Child("strategy"), &s.Strategy)
	spec.NonNegative("minReadySeconds", int64(s.MinReadySeconds))
	check.NonNegativeIfSet(spec, "revisionHistoryLimit", s.RevisionHistoryLimit)
	validateRollbackTo(spec, d)
	if deadline := s.ProgressDeadlineSeconds; deadline != nil {
		spec.NonNegative("progressDeadlineSeconds", int64(*deadline))
		if *deadline <= s.MinReadySeconds {
			spec.Invalid("progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
		}
	}
	return spec
}

// validateSelectedTemplate validates what deployments and replica sets have in common: a selector, and a template it must match.
func validateSelectedTemplate(spec *check.Part, selector *metav1.LabelSelector, t, old *corev1.PodTemplateSpec) {
	workload.SelectorGiven(spec, selector, "deployment")
	matches, err := workload.Matches(selector, t)
	if err != nil {
		spec.Invalid("selector", selector, "invalid label selector")
		return
	}
	if !matches {
		workload.Mismatch(spec, t)
	}
	spec.Add(pod.ValidateTemplate(t, old, spec.Path("template"))...)
	workload.RunsForever(spec, t, "ReplicaSet")
}

func validateDeploymentStrategy(p *check.Part, s *appsv1.DeploymentStrategy) {
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			p.Forbidden("rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		unavailable, surge := *s.RollingUpdate.MaxUnavailable, *s.RollingUpdate.MaxSurge
		r := p.Child("rollingUpdate")
		workload.IntOrPercent(r, "maxUnavailable", unavailable)
		workload.IntOrPercent(r, "maxSurge", surge)
		if workload.Amount(unavailable) == 0 && workload.Amount(surge) == 0 {
			r.Invalid("maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
		}
		workload.AtMostAll(r, "maxUnavailable", unavailable)
	default:
		given := *s
		if s.RollingUpdate != nil {
			rolling := *s.RollingUpdate
			fill(&rolling.MaxUnavailable, intstr.IntOrString{})
			fill(&rolling.MaxSurge, intstr.IntOrString{})
			given.RollingUpdate = &rolling
		}
		p.Add(field.NotSupported(p.Path(), check.Internal(given), []appsv1.DeploymentStrategyType{
			appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType}))
	}
}

func validateRollbackTo(spec *check.Part, d *appsv1.Deployment) {
	text, ok := d.Annotations[appsv1.DeprecatedRollbackTo]
	if !ok {
		return
	}
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		spec.Add(field.Invalid(field.NewPath("metadata", "annotations").Key(appsv1.DeprecatedRollbackTo), text, "must be a revision number"))
		return
	}
	spec.Child("rollback").NonNegative("version", revision)
}

func deploymentWarnings(new, old *appsv1.Deployment) []string {
	path := field.NewPath("spec", "template")
	if old == nil {
		return append(workload.NameWarnings(new.Name), pod.TemplateWarnings(&new.Spec.Template, nil, path)...)
	}
	if new.Generation == old.Generation {
		return nil
	}
	return pod.TemplateWarnings(&new.Spec.Template, &old.Spec.Template, path)
}

func validateDeploymentStatus(new, old *appsv1.Deployment) field.ErrorList {
	s := &new.Status
	p := check.At(field.NewPath("status"))
	p.NonNegative("observedGeneration", s.ObservedGeneration)
	p.NonNegative("replicas", int64(s.Replicas))
	p.NonNegative("updatedReplicas", int64(s.UpdatedReplicas))
	p.NonNegative("readyReplicas", int64(s.ReadyReplicas))
	p.NonNegative("availableReplicas", int64(s.AvailableReplicas))
	p.NonNegative("unavailableReplicas", int64(s.UnavailableReplicas))
	check.NonNegativeIfSet(p, "terminatingReplicas", s.TerminatingReplicas)
	check.NonNegativeIfSet(p, "collisionCount", s.CollisionCount)
	check.AtMost(p, "updatedReplicas", s.UpdatedReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "readyReplicas", s.ReadyReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "availableReplicas", s.AvailableReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than readyReplicas")
	workload.Kept(p, "collisionCount", s.CollisionCount, old.Status.CollisionCount)
	return p.Errors()
}

const beyondReplicas = "cannot be greater than status.replicas"

func deploymentColumns() []catalog.Column[appsv1.Deployment] {
	type column = catalog.Column[appsv1.Deployment]
	doc := appsv1.DeploymentStatus{}.SwaggerDoc()
	template := func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template }
	return []column{
		catalog.NameColumn[appsv1.Deployment](),
		{Name: "Ready", Description: "Number of the pod with ready state",
			Cell: func(d *appsv1.Deployment, _ time.Time) any { return ready(d.Status.ReadyReplicas, d.Spec.Replicas) }},
		{Name: "Up-to-date", Description: doc["updatedReplicas"],
			Cell: func(d *appsv1.Deployment, _ time.Time) any { return int64(d.Status.UpdatedReplicas) }},
		{Name: "Available", Description: doc["availableReplicas"],
			Cell: func(d *appsv1.Deployment, _ time.Time) any { return int64(d.Status.AvailableReplicas) }},
		catalog.AgeColumn[appsv1.Deployment](),
		workload.Containers(template),
		workload.Images(template),
		{Name: "Selector", Priority: 1, Description: appsv1.DeploymentSpec{}.SwaggerDoc()["selector"],
			Cell: func(d *appsv1.Deployment, _ time.Time) any {
				s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
				if err != nil {
					return "<invalid>"
				}
				return s.String()
			}},
	}
}

func ready(have int32, want *int32) string {
	if want == nil {
		want = new(int32)
	}
	return fmt.Sprintf("%d/%d", have, *want)
}
