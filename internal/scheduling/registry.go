package scheduling

import (
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// Names of plugins, as in configurations and Events.
const (
	PrioritySort                    = "PrioritySort"
	SchedulingGates                 = "SchedulingGates"
	NodeName                        = "NodeName"
	NodeUnschedulable               = "NodeUnschedulable"
	TaintToleration                 = "TaintToleration"
	NodeAffinity                    = "NodeAffinity"
	NodePorts                       = "NodePorts"
	NodeResourcesFit                = "NodeResourcesFit"
	NodeResourcesBalancedAllocation = "NodeResourcesBalancedAllocation"
	ImageLocality                   = "ImageLocality"
	InterPodAffinity                = "InterPodAffinity"
	PodTopologySpread               = "PodTopologySpread"
	NodeDeclaredFeatures            = "NodeDeclaredFeatures"
	VolumeRestrictions              = "VolumeRestrictions"
	NodeVolumeLimits                = "NodeVolumeLimits"
	VolumeBinding                   = "VolumeBinding"
	VolumeZone                      = "VolumeZone"
	DynamicResources                = "DynamicResources"
	DefaultPreemption               = "DefaultPreemption" // implemented by package scheduler
	DefaultBinder                   = "DefaultBinder"     // implemented by package scheduler
)

// defaultPlugins holds the default plugins of kube-scheduler, in its order, with the weights of those that score.
var defaultPlugins = []weighted{
	{SchedulingGates, 0}, {PrioritySort, 0}, {NodeName, 0}, {NodeUnschedulable, 0}, {TaintToleration, 3}, {NodeAffinity, 2}, {NodePorts, 0},
	{NodeResourcesFit, 1}, {VolumeRestrictions, 0}, {NodeVolumeLimits, 0}, {VolumeBinding, 0}, {VolumeZone, 0}, {PodTopologySpread, 2},
	{InterPodAffinity, 2}, {DynamicResources, 2}, {DefaultPreemption, 0}, {NodeResourcesBalancedAllocation, 1}, {ImageLocality, 1},
	{DefaultBinder, 0}, {NodeDeclaredFeatures, 0},
}

type weighted struct {
	name   string
	weight int32
}

// elsewhere holds plugins of kube-scheduler that configurations may name and that are not in this package: package scheduler has them, or they are behind
// feature gates that are off.
var elsewhere = map[string]bool{
	"GangScheduling": true, "DeferredPodScheduling": true, "TopologyPlacementGenerator": true, "PodGroupPodsCount": true,
	DefaultPreemption: true, DefaultBinder: true,
}

// newPlugin creates a plugin of this package by name.
func (b *builder) newPlugin(name string) (Plugin, error) {
	switch name {
	case PrioritySort:
		return prioritySort{}, nil
	case SchedulingGates:
		return schedulingGates{}, nil
	case NodeName:
		return newNodeName(), nil
	case NodeUnschedulable:
		return newNodeUnschedulable(), nil
	case TaintToleration:
		return newTaintToleration(), nil
	case NodePorts:
		return newNodePorts(), nil
	case NodeDeclaredFeatures:
		return newNodeDeclaredFeatures(), nil
	case ImageLocality:
		return imageLocality{}, nil
	case VolumeRestrictions:
		return newVolumeRestrictions(), nil
	case NodeVolumeLimits:
		return newNodeVolumeLimits(), nil
	case VolumeZone:
		return newVolumeZone(), nil
	case VolumeBinding:
		return withArgs(b, name, checkVolumeBindingArgs, func(a *schedv1.VolumeBindingArgs) (*volumeBinding, error) { return newVolumeBinding(a), nil })
	case DynamicResources:
		return withArgs(b, name, checkDynamicResourcesArgs, func(a *schedv1.DynamicResourcesArgs) (*dynamicResources, error) { return newDynamicResources(a), nil })
	case NodeAffinity:
		return withArgs(b, name, checkNodeAffinityArgs, newNodeAffinity)
	case NodeResourcesFit:
		return withArgs(b, name, checkFitArgs, func(a *schedv1.NodeResourcesFitArgs) (*fit, error) { return newFit(a), nil })
	case NodeResourcesBalancedAllocation:
		return withArgs(b, name, checkBalancedAllocationArgs, func(a *schedv1.NodeResourcesBalancedAllocationArgs) (*balancedAllocation, error) {
			return &balancedAllocation{a.Resources}, nil
		})
	case InterPodAffinity:
		return withArgs(b, name, checkInterPodAffinityArgs, func(a *schedv1.InterPodAffinityArgs) (*interPodAffinity, error) {
			return newInterPodAffinity(a), nil
		})
	case PodTopologySpread:
		return withArgs(b, name, checkPodTopologySpreadArgs, func(a *schedv1.PodTopologySpreadArgs) (*podTopologySpread, error) {
			return newPodTopologySpread(a), nil
		})
	}
	return nil, nil
}

// refuse returns a refusal, which may be shared.
func refuse(plugin string, code Code, reasons ...string) *Status {
	return &Status{Code: code, Plugin: plugin, Reasons: reasons}
}

// failure returns the status of a plugin that failed.
func failure(plugin string, err error) *Status {
	return &Status{Code: Error, Plugin: plugin, Reasons: []string{err.Error()}, Err: err}
}

// checkFunc is a Check without state.
type checkFunc func(*Node) *Status

func (f checkFunc) Filter(n *Node) *Status { return f(n) }

// normalize scales scores so that the best is MaxScore; with reverse, so that the highest becomes 0.
func normalize(scores []int64, reverse bool) {
	var highest int64
	for _, s := range scores {
		highest = max(highest, s)
	}
	for i := range scores {
		if highest > 0 {
			scores[i] = MaxScore * scores[i] / highest
		}
		if reverse {
			scores[i] = MaxScore - scores[i]
		}
	}
}

// placed reports whether the pod is on a node, or nominated for one.
func (p *Pod) placed() bool { return p.Spec.NodeName != "" || p.Status.NominatedNodeName != "" }
