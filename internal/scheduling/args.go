package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	schedv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
)

// This file has the defaults and the validation of the plugins' arguments, as in kube-scheduler.

// defaultScoreResources returns the resources that scores use by default: CPU and memory with equal weights.
func defaultScoreResources() []schedv1.ResourceSpec {
	return []schedv1.ResourceSpec{{Name: string(corev1.ResourceCPU), Weight: 1}, {Name: string(corev1.ResourceMemory), Weight: 1}}
}

func defaultWeights(resources []schedv1.ResourceSpec) []schedv1.ResourceSpec {
	if len(resources) == 0 {
		return defaultScoreResources()
	}
	for i := range resources {
		if resources[i].Weight == 0 {
			resources[i].Weight = 1
		}
	}
	return resources
}

func checkNodeAffinityArgs(args *schedv1.NodeAffinityArgs, path *field.Path) error {
	if args.AddedAffinity == nil {
		return nil
	}
	path = path.Child("addedAffinity")
	if required := args.AddedAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		if _, err := nodeaffinity.NewNodeSelector(required, field.WithPath(path.Child("requiredDuringSchedulingIgnoredDuringExecution"))); err != nil {
			return err
		}
	}
	_, err := nodeaffinity.NewPreferredSchedulingTerms(args.AddedAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
		field.WithPath(path.Child("preferredDuringSchedulingIgnoredDuringExecution")))
	return err
}

func checkVolumeBindingArgs(args *schedv1.VolumeBindingArgs, path *field.Path) error {
	if args.BindTimeoutSeconds == nil {
		args.BindTimeoutSeconds = ptr.To[int64](600)
	}
	if len(args.Shape) == 0 { // the more of a volume is used, the worse
		args.Shape = []schedv1.UtilizationShapePoint{{Utilization: 0, Score: maxShapeScore}, {Utilization: 100, Score: 0}}
	}
	var errs field.ErrorList
	if *args.BindTimeoutSeconds < 0 {
		errs = append(errs, field.Invalid(path.Child("bindTimeoutSeconds"), *args.BindTimeoutSeconds, "invalid BindTimeoutSeconds, should not be a negative value"))
	}
	return append(errs, checkShape(args.Shape, path.Child("shape"))...).ToAggregate()
}

func checkDynamicResourcesArgs(args *schedv1.DynamicResourcesArgs, path *field.Path) error {
	if args.FilterTimeout == nil {
		args.FilterTimeout = &metav1.Duration{Duration: schedv1.DynamicResourcesFilterTimeoutDefault}
	}
	if args.BindingTimeout == nil {
		args.BindingTimeout = &metav1.Duration{Duration: schedv1.DynamicResourcesBindingTimeoutDefault}
	}
	var errs field.ErrorList
	if args.FilterTimeout.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("filterTimeout"), args.FilterTimeout, "must be zero or positive"))
	}
	if args.BindingTimeout.Duration < time.Second {
		errs = append(errs, field.Invalid(path.Child("bindingTimeout"), args.BindingTimeout, "must be at least 1 second"))
	}
	return errs.ToAggregate()
}

func checkInterPodAffinityArgs(args *schedv1.InterPodAffinityArgs, path *field.Path) error {
	if args.HardPodAffinityWeight == nil {
		args.HardPodAffinityWeight = ptr.To[int32](1)
	}
	if w := *args.HardPodAffinityWeight; w < 0 || w > 100 {
		return field.Invalid(path.Child("hardPodAffinityWeight"), w, "not in valid range [0, 100]")
	}
	return nil
}

func checkBalancedAllocationArgs(args *schedv1.NodeResourcesBalancedAllocationArgs, path *field.Path) error {
	args.Resources = defaultWeights(args.Resources)
	var errs field.ErrorList
	for i, r := range args.Resources {
		path := path.Child("resources").Index(i)
		if slices.ContainsFunc(args.Resources[:i], func(other schedv1.ResourceSpec) bool { return other.Name == r.Name }) {
			errs = append(errs, field.Duplicate(path.Child("name"), r.Name))
		}
		if r.Weight != 1 {
			errs = append(errs, field.Invalid(path.Child("weight"), r.Weight, "must be 1"))
		}
	}
	return errs.ToAggregate()
}

func checkPodTopologySpreadArgs(args *schedv1.PodTopologySpreadArgs, path *field.Path) error {
	if args.DefaultingType == "" {
		args.DefaultingType = schedv1.SystemDefaulting
	}
	var errs field.ErrorList
	switch how := path.Child("defaultingType"); {
	case args.DefaultingType != schedv1.SystemDefaulting && args.DefaultingType != schedv1.ListDefaulting:
		errs = append(errs, field.NotSupported(how, args.DefaultingType, []string{string(schedv1.SystemDefaulting), string(schedv1.ListDefaulting)}))
	case args.DefaultingType == schedv1.SystemDefaulting && len(args.DefaultConstraints) > 0:
		errs = append(errs, field.Invalid(how, args.DefaultingType, "when .defaultConstraints are not empty"))
	}
	path = path.Child("defaultConstraints")
	for i, c := range args.DefaultConstraints {
		errs = append(errs, checkDefaultConstraint(c, path.Index(i))...)
		if slices.ContainsFunc(args.DefaultConstraints[:i], func(other corev1.TopologySpreadConstraint) bool {
			return other.TopologyKey == c.TopologyKey && other.WhenUnsatisfiable == c.WhenUnsatisfiable
		}) {
			errs = append(errs, field.Duplicate(path.Index(i), fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
		}
	}
	return errs.ToAggregate()
}

func checkDefaultConstraint(c corev1.TopologySpreadConstraint, path *field.Path) (errs field.ErrorList) {
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "not in valid range (0, inf)"))
	}
	if c.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	} else {
		errs = append(errs, metavalidation.ValidateLabelName(c.TopologyKey, path.Child("topologyKey"))...)
	}
	switch when := path.Child("whenUnsatisfiable"); c.WhenUnsatisfiable {
	case corev1.DoNotSchedule, corev1.ScheduleAnyway:
	case "":
		errs = append(errs, field.Required(when, "can not be empty"))
	default:
		errs = append(errs, field.NotSupported(when, c.WhenUnsatisfiable, []string{string(corev1.DoNotSchedule), string(corev1.ScheduleAnyway)}))
	}
	if c.LabelSelector != nil {
		errs = append(errs, field.Forbidden(path.Child("labelSelector"), "constraint must not define a selector, as they deduced for each pod"))
	}
	return errs
}

func checkFitArgs(args *schedv1.NodeResourcesFitArgs, path *field.Path) error {
	if args.ScoringStrategy == nil {
		args.ScoringStrategy = &schedv1.ScoringStrategy{Type: schedv1.LeastAllocated}
	}
	strategy := args.ScoringStrategy
	strategy.Resources = defaultWeights(strategy.Resources)

	var errs field.ErrorList
	for i, name := range args.IgnoredResources {
		errs = append(errs, metavalidation.ValidateLabelName(name, path.Child("ignoredResources").Index(i))...)
	}
	for i, group := range args.IgnoredResourceGroups {
		path := path.Child("ignoredResourceGroups").Index(i)
		if strings.Contains(group, "/") {
			errs = append(errs, field.Invalid(path, group, "resource group name can't contain '/'"))
		}
		errs = append(errs, metavalidation.ValidateLabelName(group, path)...)
	}
	path = path.Child("scoringStrategy")
	ratio := path.Child("requestedToCapacityRatio")
	switch strategy.Type {
	case schedv1.RequestedToCapacityRatio:
		if strategy.RequestedToCapacityRatio == nil {
			errs = append(errs, field.Required(ratio, "must be specified when type is RequestedToCapacityRatio"))
		} else {
			errs = append(errs, checkShape(strategy.RequestedToCapacityRatio.Shape, ratio.Child("shape"))...)
		}
	case schedv1.LeastAllocated, schedv1.MostAllocated:
		if strategy.RequestedToCapacityRatio != nil {
			errs = append(errs, field.Forbidden(ratio, "must be nil when type is not RequestedToCapacityRatio"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), strategy.Type,
			[]string{string(schedv1.LeastAllocated), string(schedv1.MostAllocated), string(schedv1.RequestedToCapacityRatio)}))
	}
	for i, r := range strategy.Resources {
		if r.Weight <= 0 || r.Weight > 100 {
			errs = append(errs, field.Invalid(path.Child("resources").Index(i).Child("weight"), r.Weight,
				fmt.Sprintf("resource weight of %v not in valid range (0, 100]", r.Name)))
		}
	}
	return errs.ToAggregate()
}

func checkShape(shape []schedv1.UtilizationShapePoint, path *field.Path) (errs field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(path, "at least one point must be specified")}
	}
	for i := 1; i < len(shape); i++ {
		if shape[i-1].Utilization >= shape[i].Utilization {
			errs = append(errs, field.Invalid(path.Index(i).Child("utilization"), shape[i].Utilization, "values must be sorted in increasing order"))
			break
		}
	}
	for i, point := range shape {
		if point.Utilization < 0 || point.Utilization > 100 {
			errs = append(errs, field.Invalid(path.Index(i).Child("utilization"), point.Utilization, "not in valid range [0, 100]"))
		}
		if point.Score < 0 || point.Score > maxShapeScore {
			errs = append(errs, field.Invalid(path.Index(i).Child("score"), point.Score, fmt.Sprintf("not in valid range [0, %d]", maxShapeScore)))
		}
	}
	return errs
}
