package autoscaling

import (
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"skiff/internal/catalog"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{stored{}, HorizontalPodAutoscalerV1}
}

// stored declares the resource with the Info that the view refers to.
type stored struct{}

func (stored) Info() *catalog.Info { return storedInfo() }

var storedInfo = sync.OnceValue(HorizontalPodAutoscaler.Info)

var HorizontalPodAutoscaler = catalog.Resource[autoscalingv2.HorizontalPodAutoscaler]{
	Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler", Plural: "horizontalpodautoscalers",
	Short: []string{"hpa"}, Categories: []string{"all"}, Namespaced: true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultHPA,
	Changed:             catalog.SpecChanged[autoscalingv2.HorizontalPodAutoscaler],
	Validate:            validateHPA,
	ValidateUpdate:      validateHPAUpdate,
	Status:              &catalog.Edit[autoscalingv2.HorizontalPodAutoscaler]{ValidateUpdate: validateHPAStatus},
	Columns:             hpaColumns(),
	Complete:            true,
}

var HorizontalPodAutoscalerV1 = catalog.View[autoscalingv1.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscaler]{
	Resource: catalog.Resource[autoscalingv1.HorizontalPodAutoscaler]{
		Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler", Plural: "horizontalpodautoscalers",
		Short: []string{"hpa"}, Categories: []string{"all"}, Namespaced: true,
		Name:                validation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		Default: func(h *autoscalingv1.HorizontalPodAutoscaler) {
			fill(&h.Spec.MinReplicas, 1)
			if !carried(h, metricsAnnotation, new([]autoscalingv1.MetricSpec)) {
				fill(&h.Spec.TargetCPUUtilizationPercentage, defaultCPUUtilization)
			}
		},
		Status:   &catalog.Edit[autoscalingv1.HorizontalPodAutoscaler]{},
		Complete: true,
	},
	Of:         storedInfo,
	ToStored:   toV2,
	FromStored: toV1,
}

func defaultHPA(h *autoscalingv2.HorizontalPodAutoscaler) {
	for _, a := range viewAnnotations {
		delete(h.Annotations, a)
	}
	s := &h.Spec
	fill(&s.MinReplicas, 1)
	if len(s.Metrics) == 0 {
		s.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(defaultCPUUtilization)}
	}
	if s.Behavior == nil {
		return
	}
	fill(&s.Behavior.ScaleUp, autoscalingv2.HPAScalingRules{})
	up := s.Behavior.ScaleUp
	fill(&up.StabilizationWindowSeconds, 0)
	fill(&up.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if up.Policies == nil {
		up.Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		}
	}
	// The controller decides the default stabilization window for scaling down.
	fill(&s.Behavior.ScaleDown, autoscalingv2.HPAScalingRules{})
	down := s.Behavior.ScaleDown
	fill(&down.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if down.Policies == nil {
		down.Policies = []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}}
	}
}

const defaultCPUUtilization = 80

func cpuUtilization(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name:   corev1.ResourceCPU,
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}}}
}

// fill sets a field that is nil.
func fill[V any](p **V, value V) {
	if *p == nil {
		*p = &value
	}
}
