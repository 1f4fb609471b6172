package apps

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/workload"
)

var ReplicaSet = catalog.Resource[appsv1.ReplicaSet]{
	Group: "apps", Version: "v1", Kind: "ReplicaSet", Plural: "replicasets",
	Short: []string{"rs"}, Categories: []string{"all"}, Namespaced: true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default: func(r *appsv1.ReplicaSet) {
		pod.DefaultTemplate(&r.Spec.Template)
		fill(&r.Spec.Replicas, 1)
	},
	PrepareCreate: func(r *appsv1.ReplicaSet, _ catalog.Request) { pod.PrepareTemplate(&r.Spec.Template) },
	PrepareUpdate: func(new, _ *appsv1.ReplicaSet) { pod.PrepareTemplate(&new.Spec.Template) },
	Changed:       catalog.SpecChanged[appsv1.ReplicaSet],
	Validate: func(r *appsv1.ReplicaSet) field.ErrorList {
		return validateReplicaSet(&r.Spec, nil).Errors()
	},
	ValidateUpdate: func(new, old *appsv1.ReplicaSet) field.ErrorList {
		spec := validateReplicaSet(&new.Spec, &old.Spec.Template)
		spec.Immutable("selector", new.Spec.Selector, old.Spec.Selector)
		return spec.Errors()
	},
	Warnings: func(new, old *appsv1.ReplicaSet) []string {
		path := field.NewPath("spec", "template")
		if old == nil {
			return append(workload.NameWarnings(new.Name), pod.TemplateWarnings(&new.Spec.Template, nil, path)...)
		}
		if new.Generation == old.Generation {
			return nil
		}
		return pod.TemplateWarnings(&new.Spec.Template, &old.Spec.Template, path)
	},
	Status: &catalog.Edit[appsv1.ReplicaSet]{ValidateUpdate: validateReplicaSetStatus},
	Scale: &catalog.Scale[appsv1.ReplicaSet]{
		Get: func(r *appsv1.ReplicaSet) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return scaleOf(r.Spec.Replicas, r.Status.Replicas, r.Spec.Selector)
		},
		Set: func(r *appsv1.ReplicaSet, replicas int32) { r.Spec.Replicas = &replicas },
	},
	Columns:  replicaSetColumns(),
	Complete: true,
}

func validateReplicaSet(s *appsv1.ReplicaSetSpec, oldTemplate *corev1.PodTemplateSpec) *check.Part {
	spec := check.At(field.NewPath("spec"))
	check.NonNegativeIfSet(spec, "replicas", s.Replicas)
	spec.NonNegative("minReadySeconds", int64(s.MinReadySeconds))
	validateSelectedTemplate(spec, s.Selector, &s.Template, oldTemplate)
	return spec
}

func validateReplicaSetStatus(new, _ *appsv1.ReplicaSet) field.ErrorList {
	s := &new.Status
	p := check.At(field.NewPath("status"))
	p.NonNegative("replicas", int64(s.Replicas))
	p.NonNegative("fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	p.NonNegative("readyReplicas", int64(s.ReadyReplicas))
	p.NonNegative("availableReplicas", int64(s.AvailableReplicas))
	p.NonNegative("observedGeneration", s.ObservedGeneration)
	check.NonNegativeIfSet(p, "terminatingReplicas", s.TerminatingReplicas)
	check.AtMost(p, "fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "readyReplicas", s.ReadyReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "availableReplicas", s.AvailableReplicas, s.Replicas, beyondReplicas)
	check.AtMost(p, "availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than readyReplicas")
	return p.Errors()
}

func replicaSetColumns() []catalog.Column[appsv1.ReplicaSet] {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	template := func(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &r.Spec.Template }
	return []catalog.Column[appsv1.ReplicaSet]{
		catalog.NameColumn[appsv1.ReplicaSet](),
		{Name: "Desired", Type: "integer", Description: spec["replicas"],
			Cell: func(r *appsv1.ReplicaSet, _ time.Time) any { return int64(*r.Spec.Replicas) }},
		{Name: "Current", Type: "integer", Description: status["replicas"],
			Cell: func(r *appsv1.ReplicaSet, _ time.Time) any { return int64(r.Status.Replicas) }},
		{Name: "Ready", Type: "integer", Description: status["readyReplicas"],
			Cell: func(r *appsv1.ReplicaSet, _ time.Time) any { return int64(r.Status.ReadyReplicas) }},
		catalog.AgeColumn[appsv1.ReplicaSet](),
		workload.Containers(template),
		workload.Images(template),
		workload.Selector(spec["selector"], func(r *appsv1.ReplicaSet) *metav1.LabelSelector { return r.Spec.Selector }),
	}
}
