package scheduling

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Before KubeSchedulerConfiguration, a policy file named predicates and priorities. This file translates them into plugins.

// predicatePlugins holds the plugins that replaced predicates.
var predicatePlugins = map[string][]string{
	"GeneralPredicates":       {NodeResourcesFit, NodeName, NodePorts, NodeAffinity},
	"PodFitsResources":        {NodeResourcesFit},
	"PodFitsHostPorts":        {NodePorts},
	"PodFitsPorts":            {NodePorts},
	"HostName":                {NodeName},
	"MatchNodeSelector":       {NodeAffinity},
	"MatchInterPodAffinity":   {InterPodAffinity},
	"EvenPodsSpread":          {PodTopologySpread},
	"PodToleratesNodeTaints":  {TaintToleration},
	"CheckNodeUnschedulable":  {NodeUnschedulable},
	"NoDiskConflict":          {VolumeRestrictions},
	"NoVolumeZoneConflict":    {VolumeZone},
	"NoVolumeNodeConflict":    {VolumeBinding},
	"CheckVolumeBinding":      {VolumeBinding},
	"MaxEBSVolumeCount":       {NodeVolumeLimits},
	"MaxGCEPDVolumeCount":     {NodeVolumeLimits},
	"MaxAzureDiskVolumeCount": {NodeVolumeLimits},
	"MaxCinderVolumeCount":    {NodeVolumeLimits},
	"MaxCSIVolumeCountPred":   {NodeVolumeLimits},
	// Node conditions are taints now.
	"PodToleratesNodeNoExecuteTaints": {TaintToleration},
	"CheckNodeCondition":              {TaintToleration},
	"CheckNodeMemoryPressure":         {TaintToleration},
	"CheckNodeDiskPressure":           {TaintToleration},
	"CheckNodePIDPressure":            {TaintToleration},
}

// mandatoryPredicates apply whatever a policy says: no pod goes to a node that is not ready or cordoned.
var mandatoryPredicates = []string{"PodToleratesNodeTaints", "CheckNodeUnschedulable"}

// priorityPlugins holds the plugins that replaced priorities; none for those that scored all nodes equally or whose plugin kube-scheduler no longer has.
var priorityPlugins = map[string]string{
	"LeastRequestedPriority":           NodeResourcesFit,
	"MostRequestedPriority":            NodeResourcesFit,
	"RequestedToCapacityRatioPriority": NodeResourcesFit,
	"BalancedResourceAllocation":       NodeResourcesBalancedAllocation,
	"SelectorSpreadPriority":           PodTopologySpread,
	"ServiceSpreadingPriority":         PodTopologySpread,
	"EvenPodsSpreadPriority":           PodTopologySpread,
	"InterPodAffinityPriority":         InterPodAffinity,
	"NodeAffinityPriority":             NodeAffinity,
	"TaintTolerationPriority":          TaintToleration,
	"ImageLocalityPriority":            ImageLocality,
	"EqualPriority":                    "",
	"NodePreferAvoidPodsPriority":      "",
	"ResourceLimitsPriority":           "",
}

// policy is the content of a policy file.
type policy struct {
	Kind                           string             `json:"kind"`
	APIVersion                     string             `json:"apiVersion"`
	Predicates                     *[]policyPredicate `json:"predicates"`
	Priorities                     *[]policyPriority  `json:"priorities"`
	Extenders                      []any              `json:"extenders"`
	HardPodAffinitySymmetricWeight *int32             `json:"hardPodAffinitySymmetricWeight"`
	AlwaysCheckAllPredicates       bool               `json:"alwaysCheckAllPredicates"`
}

// policyPredicate has a name of the user's choice if it has an argument.
type policyPredicate struct {
	Name     string `json:"name"`
	Argument *struct {
		LabelsPresence *policyLabels `json:"labelsPresence"`
	} `json:"argument"`
}

type policyLabels struct {
	Labels   []string `json:"labels"`
	Presence bool     `json:"presence"`
}

type policyPriority struct {
	Name     string `json:"name"`
	Weight   int64  `json:"weight"`
	Argument *struct {
		ServiceAntiAffinity *struct {
			Label string `json:"label"`
		} `json:"serviceAntiAffinity"`
		LabelPreference *struct {
			Label    string `json:"label"`
			Presence bool   `json:"presence"`
		} `json:"labelPreference"`
		RequestedToCapacityRatio *struct {
			Shape     []schedv1.UtilizationShapePoint `json:"shape"`
			Resources []schedv1.ResourceSpec          `json:"resources"`
		} `json:"requestedToCapacityRatioArguments"`
	} `json:"argument"`
}

// NewPolicyProfile returns the plugins for a policy file, which names them as predicates and priorities. data is the JSON or YAML of a Policy (kind:
// Policy, apiVersion: v1). A policy without predicates, or without priorities, has the default ones; one with an empty list has none.
func NewPolicyProfile(schedulerName string, data []byte) (*Profile, error) {
	var p policy
	data, err := yaml.YAMLToJSON(data)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, &p)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("invalid policy: %w", err)
	case p.Kind != "Policy" || p.APIVersion != "v1":
		return nil, fmt.Errorf("invalid policy: kind must be Policy and apiVersion v1, got %q and %q", p.Kind, p.APIVersion)
	case len(p.Extenders) > 0:
		return nil, fmt.Errorf("invalid policy: extenders are not supported")
	case p.AlwaysCheckAllPredicates:
		return nil, fmt.Errorf("invalid policy: alwaysCheckAllPredicates is not supported: only the first reason that a node does not fit is reported")
	}
	t := &translation{scores: map[string]int64{}}
	if err := t.predicates(p.Predicates); err != nil {
		return nil, err
	}
	if err := t.priorities(p.Priorities); err != nil {
		return nil, err
	}
	t.hardWeight = p.HardPodAffinitySymmetricWeight
	return NewProfile(t.profile(schedulerName))
}

// translation holds the plugins and arguments that a policy is translated to.
type translation struct {
	filters      []string
	scores       map[string]int64 // weights by plugin
	defaultFor   struct{ filters, scores bool }
	strategy     *schedv1.ScoringStrategy
	scoredBy     string // the priority that set the strategy
	required     []corev1.NodeSelectorRequirement
	preferred    []corev1.PreferredSchedulingTerm
	spread       []corev1.TopologySpreadConstraint
	systemSpread bool // by the system's default constraints
	hardWeight   *int32
}

func (t *translation) predicates(list *[]policyPredicate) error {
	if list == nil {
		t.defaultFor.filters = true
		return nil
	}
	for _, name := range mandatoryPredicates {
		t.filters = append(t.filters, predicatePlugins[name]...)
	}
	for _, p := range *list {
		if p.Argument != nil {
			if p.Argument.LabelsPresence == nil {
				return fmt.Errorf("Invalid configuration: predicate %s: of arguments only labelsPresence is supported", p.Name)
			}
			for _, label := range p.Argument.LabelsPresence.Labels {
				t.required = append(t.required, labelIs(label, p.Argument.LabelsPresence.Presence))
			}
			t.filters = append(t.filters, NodeAffinity)
			continue
		}
		plugins, ok := predicatePlugins[p.Name]
		if !ok {
			return fmt.Errorf("Invalid configuration: Predicate type not found for %s", p.Name)
		}
		t.filters = append(t.filters, plugins...)
	}
	return nil
}

func labelIs(label string, present bool) corev1.NodeSelectorRequirement {
	if present {
		return corev1.NodeSelectorRequirement{Key: label, Operator: corev1.NodeSelectorOpExists}
	}
	return corev1.NodeSelectorRequirement{Key: label, Operator: corev1.NodeSelectorOpDoesNotExist}
}

func (t *translation) priorities(list *[]policyPriority) error {
	if list == nil {
		t.defaultFor.scores = true
		return nil
	}
	for _, p := range *list {
		if p.Weight <= 0 || p.Weight > math.MaxInt32/MaxScore {
			return fmt.Errorf("Priority %s should have a positive weight applied to it or it has overflown", p.Name)
		}
		plugin, ok := priorityPlugins[p.Name]
		var err error
		switch {
		case p.Argument != nil:
			plugin, err = t.argument(&p)
		case !ok || p.Name == "RequestedToCapacityRatioPriority":
			err = fmt.Errorf("Invalid configuration: Priority type not found for %s", p.Name)
		case p.Name == "LeastRequestedPriority":
			err = t.strategyBy(p.Name, &schedv1.ScoringStrategy{Type: schedv1.LeastAllocated})
		case p.Name == "MostRequestedPriority":
			err = t.strategyBy(p.Name, &schedv1.ScoringStrategy{Type: schedv1.MostAllocated})
		case plugin == PodTopologySpread:
			t.systemSpread = true
		}
		if err != nil {
			return err
		}
		if plugin != "" {
			t.scores[plugin] += p.Weight
		}
	}
	return nil
}

// argument handles priorities that are defined by an argument, under any name.
func (t *translation) argument(p *policyPriority) (plugin string, err error) {
	switch a := p.Argument; {
	case a.ServiceAntiAffinity != nil:
		t.spread = append(t.spread, corev1.TopologySpreadConstraint{TopologyKey: a.ServiceAntiAffinity.Label, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway})
		return PodTopologySpread, nil
	case a.LabelPreference != nil:
		t.preferred = append(t.preferred, corev1.PreferredSchedulingTerm{Weight: int32(min(p.Weight, 100)), Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{labelIs(a.LabelPreference.Label, a.LabelPreference.Presence)}}})
		return NodeAffinity, nil
	case a.RequestedToCapacityRatio != nil:
		return NodeResourcesFit, t.strategyBy(p.Name, &schedv1.ScoringStrategy{Type: schedv1.RequestedToCapacityRatio, Resources: a.RequestedToCapacityRatio.Resources,
			RequestedToCapacityRatio: &schedv1.RequestedToCapacityRatioParam{Shape: a.RequestedToCapacityRatio.Shape}})
	}
	return "", fmt.Errorf("Invalid configuration: Priority type not found for %s", p.Name)
}

func (t *translation) strategyBy(priority string, s *schedv1.ScoringStrategy) error {
	if t.strategy != nil {
		return fmt.Errorf("Invalid configuration: %s and %s cannot be given together, as %s scores by one strategy", t.scoredBy, priority, NodeResourcesFit)
	}
	t.strategy, t.scoredBy = s, priority
	return nil
}

// profile returns the policy as a KubeSchedulerProfile.
func (t *translation) profile(schedulerName string) schedv1.KubeSchedulerProfile {
	plugins := &schedv1.Plugins{MultiPoint: schedv1.PluginSet{Disabled: []schedv1.Plugin{{Name: "*"}}}}
	always := func(set *schedv1.PluginSet, name string) { set.Enabled = []schedv1.Plugin{{Name: name}} }
	always(&plugins.PreEnqueue, SchedulingGates)
	always(&plugins.QueueSort, PrioritySort)
	always(&plugins.PostFilter, DefaultPreemption)
	always(&plugins.Bind, DefaultBinder)
	for _, d := range defaultPlugins {
		if t.defaultFor.filters && filterPlugins[d.name] || slices.Contains(t.filters, d.name) {
			plugins.Filter.Enabled = append(plugins.Filter.Enabled, schedv1.Plugin{Name: d.name})
		}
		weight := t.scores[d.name]
		if t.defaultFor.scores {
			weight = int64(d.weight)
		}
		if weight > 0 {
			plugins.Score.Enabled = append(plugins.Score.Enabled, schedv1.Plugin{Name: d.name, Weight: ptr.To(int32(weight))})
		}
	}
	return schedv1.KubeSchedulerProfile{SchedulerName: &schedulerName, Plugins: plugins, PluginConfig: t.args()}
}

// filterPlugins holds the plugins of this package that filter.
var filterPlugins = map[string]bool{NodeName: true, NodeUnschedulable: true, TaintToleration: true, NodeAffinity: true, NodePorts: true,
	NodeResourcesFit: true, PodTopologySpread: true, InterPodAffinity: true, NodeDeclaredFeatures: true}

func (t *translation) args() []schedv1.PluginConfig {
	var out []schedv1.PluginConfig
	add := func(name string, args runtime.Object) {
		out = append(out, schedv1.PluginConfig{Name: name, Args: runtime.RawExtension{Object: args}})
	}
	if t.strategy != nil {
		add(NodeResourcesFit, &schedv1.NodeResourcesFitArgs{ScoringStrategy: t.strategy})
	}
	if t.hardWeight != nil {
		add(InterPodAffinity, &schedv1.InterPodAffinityArgs{HardPodAffinityWeight: t.hardWeight})
	}
	if len(t.spread) > 0 {
		if t.systemSpread {
			t.spread = append(slices.Clone(systemSpread), t.spread...)
		}
		add(PodTopologySpread, &schedv1.PodTopologySpreadArgs{DefaultingType: schedv1.ListDefaulting, DefaultConstraints: t.spread})
	}
	if len(t.required)+len(t.preferred) > 0 {
		affinity := &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: t.preferred}
		if len(t.required) > 0 {
			affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: t.required}}}
		}
		add(NodeAffinity, &schedv1.NodeAffinityArgs{AddedAffinity: affinity})
	}
	return out
}
