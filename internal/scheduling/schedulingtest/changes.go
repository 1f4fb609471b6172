package schedulingtest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	schedv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
)

func (g *generator) incoming(name string) Incoming {
	in := Incoming{Pod: g.pod(name)}
	if g.chance(8) {
		in.Pod.Spec.NodeName = pick(g, "node-00", "node-01", "gone")
	}
	if g.chance(10) {
		in.Pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}
	}
	for i := range g.state.Nodes {
		if g.chance(80) {
			in.Feasible = append(in.Feasible, i)
		}
	}
	// Preemption evicts pods from one node; pods nominated for it are added.
	node := g.IntN(len(g.state.Nodes))
	for _, p := range g.state.Pods {
		if p.Spec.NodeName == g.state.Nodes[node].Name && g.chance(50) {
			in.Moves = append(in.Moves, Move{Node: node, Pod: p})
		}
	}
	if g.chance(50) {
		nominated := g.pod(name + "-nominated")
		nominated.Status.NominatedNodeName = g.state.Nodes[node].Name
		in.Moves = append(in.Moves, Move{Node: node, Pod: nominated, Add: true})
	}
	for i := range 8 {
		in.Events = append(in.Events, g.event(in.Pod, fmt.Sprintf("%s-event-%d", name, i)))
	}
	return in
}

func (g *generator) event(target *corev1.Pod, name string) Event {
	switch g.IntN(6) {
	case 0:
		changed := g.changedPod(target)
		return Event{OldPod: target, NewPod: changed, Target: true}
	case 1, 2:
		p := g.pod(name)
		if !g.chance(15) {
			p.Spec.NodeName = g.state.Nodes[0].Name
		}
		if g.chance(10) {
			p.Status.NominatedNodeName = g.state.Nodes[0].Name
		}
		if p.Spec.NodeName == "" {
			return Event{OldPod: p}
		}
		switch g.IntN(3) {
		case 0:
			return Event{NewPod: p}
		case 1:
			return Event{OldPod: p}
		}
		return Event{OldPod: p, NewPod: g.changedPod(p)}
	}
	n := g.node(name)
	switch g.IntN(5) {
	case 0:
		return Event{NewNode: n}
	case 1:
		return Event{OldNode: n}
	}
	changed := n.DeepCopy()
	if g.chance(40) {
		changed.Labels = g.nodeLabels(name)
	}
	if g.chance(40) {
		changed.Spec.Taints = g.taints()
	}
	if g.chance(40) {
		changed.Spec.Unschedulable = !n.Spec.Unschedulable
	}
	if g.chance(40) {
		changed.Status.Allocatable = g.allocatable()
	}
	if g.chance(30) {
		changed.Status.DeclaredFeatures = g.features()
	}
	return Event{OldNode: n, NewNode: changed}
}

func (g *generator) changedPod(p *corev1.Pod) *corev1.Pod {
	changed := p.DeepCopy()
	if g.chance(50) {
		changed.Labels = g.labels()
	}
	if g.chance(40) {
		changed.Spec.Tolerations = append(changed.Spec.Tolerations, g.toleration())
	}
	if g.chance(40) {
		// Zero requests and no requests are not distinguished here.
		requests := g.requests()
		for name, quantity := range p.Spec.Containers[0].Resources.Requests {
			if _, has := requests[name]; quantity.IsZero() && !has {
				requests[name] = quantity
			}
		}
		changed.Spec.Containers[0].Resources.Requests = requests
	}
	if g.chance(50) {
		changed.Spec.SchedulingGates = nil
	}
	return changed
}

func (g *generator) profile() schedv1.KubeSchedulerProfile {
	var p schedv1.KubeSchedulerProfile
	add := func(name string, args runtime.Object) {
		p.PluginConfig = append(p.PluginConfig, schedv1.PluginConfig{Name: name, Args: runtime.RawExtension{Object: args}})
	}
	add("NodeResourcesFit", g.fitArgs())
	add("NodeResourcesBalancedAllocation", &schedv1.NodeResourcesBalancedAllocationArgs{Resources: g.resources(1)})
	add("InterPodAffinity", &schedv1.InterPodAffinityArgs{HardPodAffinityWeight: ptr.To(pick[int32](g, 0, 1, 1, 50)), IgnorePreferredTermsOfExistingPods: g.chance(15)})
	spread := &schedv1.PodTopologySpreadArgs{DefaultingType: schedv1.SystemDefaulting}
	if g.chance(30) {
		spread.DefaultingType = schedv1.ListDefaulting
		for _, key := range some(g, 50, topologyKeys...) {
			spread.DefaultConstraints = append(spread.DefaultConstraints, corev1.TopologySpreadConstraint{TopologyKey: key, MaxSkew: int32(g.between(1, 4)),
				WhenUnsatisfiable: pick(g, corev1.DoNotSchedule, corev1.ScheduleAnyway)})
		}
	}
	add("PodTopologySpread", spread)
	affinity := &schedv1.NodeAffinityArgs{}
	if g.chance(15) {
		added := g.nodeAffinity()
		if required := added.RequiredDuringSchedulingIgnoredDuringExecution; required != nil && len(required.NodeSelectorTerms) == 0 {
			added.RequiredDuringSchedulingIgnoredDuringExecution = nil
		}
		if _, err := nodeaffinity.NewPreferredSchedulingTerms(added.PreferredDuringSchedulingIgnoredDuringExecution); err == nil {
			affinity.AddedAffinity = added
		}
		if required := added.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			if _, err := nodeaffinity.NewNodeSelector(required); err != nil {
				affinity.AddedAffinity = nil // a profile with it would be invalid
			}
		}
	}
	add("NodeAffinity", affinity)
	return p
}

// resources returns some resources for scores; weight 0 means a random one.
func (g *generator) resources(weight int64) []schedv1.ResourceSpec {
	var out []schedv1.ResourceSpec
	for _, name := range []string{"cpu", "memory", "ephemeral-storage", "example.com/gpu"} {
		if name == "cpu" || g.chance(55) {
			w := weight
			if w == 0 {
				w = int64(g.between(1, 5))
			}
			out = append(out, schedv1.ResourceSpec{Name: name, Weight: w})
		}
	}
	return out
}

func (g *generator) fitArgs() *schedv1.NodeResourcesFitArgs {
	args := &schedv1.NodeResourcesFitArgs{ScoringStrategy: &schedv1.ScoringStrategy{Resources: g.resources(0)}}
	if g.chance(15) {
		args.IgnoredResources = []string{"example.com/gpu"}
	}
	if g.chance(10) {
		args.IgnoredResourceGroups = []string{"other.example"}
	}
	args.ScoringStrategy.Type = pick(g, schedv1.LeastAllocated, schedv1.LeastAllocated, schedv1.MostAllocated, schedv1.RequestedToCapacityRatio)
	if args.ScoringStrategy.Type == schedv1.RequestedToCapacityRatio {
		shape := []schedv1.UtilizationShapePoint{{Utilization: 0, Score: int32(g.between(0, 10))}}
		if g.chance(60) {
			shape = append(shape, schedv1.UtilizationShapePoint{Utilization: 40, Score: int32(g.between(0, 10))})
		}
		shape = append(shape, schedv1.UtilizationShapePoint{Utilization: 100, Score: int32(g.between(0, 10))})
		args.ScoringStrategy.RequestedToCapacityRatio = &schedv1.RequestedToCapacityRatioParam{Shape: shape}
	}
	return args
}
