package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/imagelocality"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodedeclaredfeatures"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodename"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/schedulinggates"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"skiff/internal/scheduling/schedulingtest"
)

// upstream records the results of kube-scheduler's plugins for a state.
func upstream(ctx context.Context, s *schedulingtest.State) (*schedulingtest.Record, error) {
	u := &asked{State: s, Record: &schedulingtest.Record{Seed: s.Seed}, snapshot: cache.NewSnapshot(s.Pods, s.Nodes)}
	if err := u.setUp(ctx); err != nil {
		return nil, fmt.Errorf("seed %d: %w", s.Seed, err)
	}
	for i := range s.Incoming {
		if err := u.incoming(ctx, i); err != nil {
			return nil, fmt.Errorf("seed %d: %w", s.Seed, err)
		}
	}
	return u.Record, nil
}

type asked struct {
	*schedulingtest.State
	*schedulingtest.Record
	snapshot *cache.Snapshot
	plugins  []fwk.Plugin
}

func (u *asked) setUp(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	for _, o := range u.Namespaces {
		factory.Core().V1().Namespaces().Informer().GetIndexer().Add(o)
	}
	for _, o := range u.Services {
		factory.Core().V1().Services().Informer().GetIndexer().Add(o)
	}
	for _, o := range u.ReplicationControllers {
		factory.Core().V1().ReplicationControllers().Informer().GetIndexer().Add(o)
	}
	for _, o := range u.ReplicaSets {
		factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(o)
	}
	for _, o := range u.StatefulSets {
		factory.Apps().V1().StatefulSets().Informer().GetIndexer().Add(o)
	}
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil, frameworkruntime.WithInformerFactory(factory), frameworkruntime.WithSnapshotSharedLister(u.snapshot))
	if err != nil {
		return err
	}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	features.EnableDRAExtendedResource = false // skiff's nodes have no devices yet
	args := map[string]runtime.Object{}
	for _, c := range u.Profile.PluginConfig {
		args[c.Name], err = internal(c.Args.Object)
		if err != nil {
			return err
		}
	}
	for _, make := range []maker{schedulinggates.New, nodename.New, nodeunschedulable.New, tainttoleration.New, nodeports.New, nodedeclaredfeatures.New,
		with(args["NodeAffinity"], nodeaffinity.New), with(args["NodeResourcesFit"], noderesources.NewFit),
		with(args["PodTopologySpread"], podtopologyspread.New), with(args["InterPodAffinity"], interpodaffinity.New),
		with(args["NodeResourcesBalancedAllocation"], noderesources.NewBalancedAllocation),
		func(ctx context.Context, o runtime.Object, h fwk.Handle, _ feature.Features) (fwk.Plugin, error) {
			return imagelocality.New(ctx, o, h)
		}} {
		plugin, err := make(ctx, nil, handle, features)
		if err != nil {
			return err
		}
		u.plugins = append(u.plugins, plugin)
	}
	return nil
}

type maker = func(context.Context, runtime.Object, fwk.Handle, feature.Features) (fwk.Plugin, error)

func with(args runtime.Object, make maker) maker {
	return func(ctx context.Context, _ runtime.Object, h fwk.Handle, f feature.Features) (fwk.Plugin, error) {
		return make(ctx, args, h, f)
	}
}

// internal returns arguments with defaults, in the internal version that plugins use.
func internal(args runtime.Object) (runtime.Object, error) {
	scheme := configv1.GetPluginArgConversionScheme()
	args = args.DeepCopyObject()
	scheme.Default(args)
	return scheme.ConvertToVersion(args, config.SchemeGroupVersion)
}

func (u *asked) incoming(ctx context.Context, i int) error {
	in := &u.Incoming[i]
	nodes := make([]fwk.NodeInfo, len(u.Nodes))
	for j, n := range u.Nodes {
		info, err := u.snapshot.NodeInfos().Get(n.Name)
		if err != nil {
			return err
		}
		nodes[j] = info
	}
	for _, plugin := range u.plugins {
		if gate, ok := plugin.(fwk.PreEnqueuePlugin); ok {
			u.Filter(i, "gate", plugin.Name(), []string{verdict(gate.PreEnqueue(ctx, in.Pod))})
		}
		if filter, ok := plugin.(fwk.FilterPlugin); ok {
			if err := u.filter(ctx, i, filter, nodes); err != nil {
				return err
			}
		}
		if score, ok := plugin.(fwk.ScorePlugin); ok {
			u.score(ctx, i, score, nodes)
		}
	}
	return nil
}

func verdict(s *fwk.Status) string {
	switch s.Code() {
	case fwk.Success:
		return ""
	case fwk.Unschedulable:
		return schedulingtest.Verdict("U", s.Reasons())
	case fwk.UnschedulableAndUnresolvable:
		return schedulingtest.Verdict("X", s.Reasons())
	}
	return schedulingtest.Verdict("E", s.Reasons())
}

func (u *asked) filter(ctx context.Context, i int, plugin fwk.FilterPlugin, nodes []fwk.NodeInfo) error {
	in := &u.Incoming[i]
	state := framework.NewCycleState()
	var refused *fwk.Status
	skipped := false
	var extensions fwk.PreFilterExtensions
	if pre, ok := plugin.(fwk.PreFilterPlugin); ok {
		_, status := pre.PreFilter(ctx, state, in.Pod, nodes)
		skipped = status.IsSkip()
		if !skipped && !status.IsSuccess() {
			refused = status
		}
		extensions = pre.PreFilterExtensions()
	}
	all := func(state fwk.CycleState, nodes []fwk.NodeInfo) []string {
		out := make([]string, len(nodes))
		for j, n := range nodes {
			switch {
			case refused != nil:
				out[j] = verdict(refused)
			case !skipped:
				out[j] = verdict(plugin.Filter(ctx, state, in.Pod, n))
			}
		}
		return out
	}
	u.Filter(i, "filter", plugin.Name(), all(state, nodes))

	state = state.Clone().(*framework.CycleState)
	moved := slices.Clone(nodes)
	for _, m := range in.Moves {
		info, err := framework.NewPodInfo(m.Pod)
		_ = err // as the scheduler does: a pod with terms that cannot be parsed has none
		moved[m.Node] = moved[m.Node].Snapshot()
		if m.Add {
			moved[m.Node].AddPodInfo(info)
		} else if err := moved[m.Node].RemovePod(klog.FromContext(ctx), m.Pod); err != nil {
			return err
		}
		if extensions == nil || skipped || refused != nil {
			continue
		}
		if m.Add {
			extensions.AddPod(ctx, state, in.Pod, info, moved[m.Node])
		} else {
			extensions.RemovePod(ctx, state, in.Pod, info, moved[m.Node])
		}
	}
	u.Filter(i, "after", plugin.Name(), all(state, moved))
	return u.wakes(ctx, i, plugin)
}

func (u *asked) score(ctx context.Context, i int, plugin fwk.ScorePlugin, all []fwk.NodeInfo) {
	in := &u.Incoming[i]
	var nodes []fwk.NodeInfo
	for _, j := range in.Feasible {
		nodes = append(nodes, all[j])
	}
	state := framework.NewCycleState()
	if pre, ok := plugin.(fwk.PreScorePlugin); ok {
		status := pre.PreScore(ctx, state, in.Pod, nodes)
		if status.IsSkip() {
			return
		}
		if !status.IsSuccess() {
			u.Filter(i, "prescore", plugin.Name(), []string{verdict(status)})
			return
		}
	}
	var raw, normalized []int64
	var list fwk.NodeScoreList
	for _, n := range nodes {
		score, status := plugin.Score(ctx, state, in.Pod, n)
		if !status.IsSuccess() {
			u.Filter(i, "score", plugin.Name(), []string{verdict(status)})
			return
		}
		raw = append(raw, score)
		list = append(list, fwk.NodeScore{Name: n.Node().Name, Score: score})
	}
	if extensions := plugin.ScoreExtensions(); extensions != nil {
		extensions.NormalizeScore(ctx, state, in.Pod, list)
	}
	for _, s := range list {
		normalized = append(normalized, s.Score)
	}
	u.Score(i, plugin.Name(), raw, normalized)
}

// wakes evaluates a plugin's queueing hints, as the scheduling queue does.
func (u *asked) wakes(ctx context.Context, i int, plugin fwk.Plugin) error {
	in := &u.Incoming[i]
	out := make([]bool, len(in.Events))
	registered, err := plugin.(fwk.EnqueueExtensions).EventsToRegister(ctx)
	if err != nil {
		return err
	}
	for j := range in.Events {
		if plugin.Name() == "PodTopologySpread" && len(in.Pod.Spec.TopologySpreadConstraints) == 0 {
			continue
		}
		happened, before, after := theirs(&in.Events[j])
		for _, r := range registered {
			for _, e := range happened {
				if !framework.MatchClusterEvents(r.Event, e) {
					continue
				}
				if r.QueueingHintFn == nil {
					out[j] = true
					continue
				}
				hint, err := r.QueueingHintFn(klog.FromContext(ctx), in.Pod, before, after)
				out[j] = out[j] || err != nil || hint == fwk.Queue
			}
		}
	}
	u.Record.Wakes(i, plugin.Name(), out)
	return nil
}

// theirs returns kube-scheduler's cluster events for an event: one for each kind of change.
func theirs(e *schedulingtest.Event) (events []fwk.ClusterEvent, before, after any) {
	kind := fwk.Node
	switch {
	case e.Target:
		kind = fwk.TargetPod
	case e.OldPod != nil || e.NewPod != nil:
		kind = fwk.AssignedPod
	}
	before, after = object(e.OldPod, e.OldNode), object(e.NewPod, e.NewNode)
	switch {
	case before == nil:
		return []fwk.ClusterEvent{{Resource: kind, ActionType: fwk.Add}}, before, after
	case after == nil:
		return []fwk.ClusterEvent{{Resource: kind, ActionType: fwk.Delete}}, before, after
	case e.OldNode != nil:
		return framework.NodeSchedulingPropertiesChange(e.NewNode, e.OldNode), before, after
	}
	events = framework.PodSchedulingPropertiesChange(e.NewPod, e.OldPod, e.Target)
	for i := range events {
		events[i].Resource = kind
	}
	return events, before, after
}

func object(p *corev1.Pod, n *corev1.Node) any {
	switch {
	case p != nil:
		return p
	case n != nil:
		return n
	}
	return nil
}
