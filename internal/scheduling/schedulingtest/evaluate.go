package schedulingtest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/scheduling"
)

// Evaluate records the results of package scheduling for a state. It builds the snapshot in detours, calling plugins on the way, so that what is kept
// from one snapshot to the next is tested as well.
func Evaluate(s *State) (*Record, error) {
	profile, err := scheduling.NewProfile(s.Profile)
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", s.Seed, err)
	}
	profile.Filters = slices.DeleteFunc(profile.Filters, func(f scheduling.FilterPlugin) bool { return notRecorded[f.Name()] })
	e := &evaluation{State: s, profile: profile, Record: &Record{Seed: s.Seed}}
	e.build()
	for i := range s.Incoming {
		e.incoming(i)
	}
	return e.Record, nil
}

// notRecorded holds the plugins that are not compared: the states have neither volumes nor devices.
var notRecorded = map[string]bool{scheduling.VolumeBinding: true, scheduling.VolumeZone: true, scheduling.VolumeRestrictions: true, scheduling.NodeVolumeLimits: true,
	scheduling.DynamicResources: true}

type evaluation struct {
	*State
	*Record
	profile  *scheduling.Profile
	snapshot *scheduling.Snapshot
}

// build builds the snapshot: first with other pods and one node less or more, then step by step as it should be.
func (e *evaluation) build() {
	r := rand.New(rand.NewPCG(e.State.Seed, 1))
	e.snapshot = scheduling.NewSnapshot(workloads{e.State})
	namespaces := map[string]labels.Set{}
	for _, ns := range e.Namespaces {
		namespaces[ns.Name] = ns.Labels
	}
	e.snapshot = e.snapshot.WithNamespaces(namespaces)
	byNode := map[string][]*scheduling.Pod{}
	for _, p := range e.Pods {
		byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], scheduling.NewPod(p))
	}
	var first []*scheduling.Node
	for i, n := range e.Nodes {
		if i%5 == 3 {
			continue
		}
		wrong := byNode[e.Nodes[r.IntN(len(e.Nodes))].Name]
		if i%4 == 1 {
			n = n.DeepCopy()
			n.Labels = map[string]string{corev1.LabelTopologyZone: "elsewhere", "rack": "r9"}
		}
		first = append(first, scheduling.NewNode(n, wrong...))
	}
	first = append(first, scheduling.NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone", Labels: e.Nodes[0].Labels}}, byNode[e.Nodes[0].Name]...))
	e.snapshot = e.snapshot.Update(first, nil)
	e.prepareAll()
	for i, n := range e.Nodes {
		have, want := e.snapshot.Node(n.Name), byNode[n.Name]
		var removed []string
		if have == nil {
			have = scheduling.NewNode(n)
		} else if have.Node != n {
			have = have.WithNode(n)
		}
		for _, p := range have.Pods {
			if !slices.Contains(want, p) {
				have = have.Without(p.UID)
			}
		}
		for _, p := range want {
			if !slices.Contains(have.Pods, p) {
				have = have.With(p)
			}
		}
		if i == len(e.Nodes)/2 {
			removed = []string{"gone"}
		}
		e.snapshot = e.snapshot.Update([]*scheduling.Node{have}, removed)
		if r.IntN(3) == 0 {
			e.prepareAll()
		}
	}
}

// prepareAll calls all plugins for all pods, so that their counts are kept.
func (e *evaluation) prepareAll() {
	for i := range e.Incoming {
		pod := scheduling.NewPod(e.Incoming[i].Pod)
		for _, p := range e.profile.Filters {
			p.PreFilter(pod, e.snapshot)
		}
		for _, p := range e.profile.Scores {
			p.PreScore(pod, e.snapshot, e.snapshot.Nodes())
		}
	}
}

func (e *evaluation) incoming(i int) {
	in := &e.Incoming[i]
	pod := scheduling.NewPod(in.Pod)
	nodes := make([]*scheduling.Node, len(e.Nodes))
	for j, n := range e.Nodes {
		nodes[j] = e.snapshot.Node(n.Name)
	}
	for _, gate := range e.profile.PreEnqueues {
		if s := gate.PreEnqueue(pod); s != nil {
			e.Filter(i, "gate", gate.Name(), []string{verdict(s)})
		}
	}
	for _, plugin := range e.profile.Filters {
		prepared := plugin.PreFilter(pod, e.snapshot)
		e.Filter(i, "filter", plugin.Name(), verdicts(prepared, nodes))
		e.Filter(i, "after", plugin.Name(), e.after(in, prepared, slices.Clone(nodes)))
		e.Record.Wakes(i, plugin.Name(), e.wakes(in, plugin, pod))
	}
	var feasible []*scheduling.Node
	for _, j := range in.Feasible {
		feasible = append(feasible, nodes[j])
	}
	for _, plugin := range e.profile.Scores {
		scorer, status := plugin.PreScore(pod, e.snapshot, feasible)
		if status != nil {
			e.Filter(i, "prescore", plugin.Name(), []string{verdict(status)})
		}
		if scorer == nil {
			continue
		}
		scores := make([]int64, len(feasible))
		scorer.Score(feasible, scores)
		raw := slices.Clone(scores)
		scorer.Normalize(feasible, scores)
		e.Score(i, plugin.Name(), raw, scores)
	}
}

func verdict(s *scheduling.Status) string {
	if s == nil {
		return ""
	}
	return Verdict([]string{"", "E", "U", "X"}[s.Code], s.Reasons)
}

func verdicts(p scheduling.PreFilterResult, nodes []*scheduling.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		switch {
		case p.Status != nil:
			out[i] = verdict(p.Status)
		case p.Check != nil:
			out[i] = verdict(p.Check.Filter(n))
		}
	}
	return out
}

// after returns the plugin's verdicts after the moves.
func (e *evaluation) after(in *Incoming, p scheduling.PreFilterResult, nodes []*scheduling.Node) []string {
	adjustable, adjusts := p.Check.(scheduling.Adjustable)
	if adjusts {
		adjustable = adjustable.Clone()
		p.Check = adjustable
	}
	for _, m := range in.Moves {
		pod := scheduling.NewPod(m.Pod)
		if m.Add {
			nodes[m.Node] = nodes[m.Node].With(pod)
		} else {
			nodes[m.Node] = nodes[m.Node].Without(pod.UID)
		}
		switch {
		case adjusts && m.Add:
			adjustable.AddPod(pod, nodes[m.Node])
		case adjusts:
			adjustable.RemovePod(pod, nodes[m.Node])
		}
	}
	return verdicts(p, nodes)
}

func (e *evaluation) wakes(in *Incoming, plugin scheduling.Plugin, pod *scheduling.Pod) []bool {
	out := make([]bool, len(in.Events))
	if plugin.Name() == scheduling.PodTopologySpread && len(in.Pod.Spec.TopologySpreadConstraints) == 0 {
		return out // a pod refused by default constraints is requeued more often here
	}
	for i := range in.Events {
		event := in.Events[i].ours()
		for _, interest := range plugin.EventsToRegister() {
			out[i] = out[i] || interest.MayHelp(pod, event)
		}
	}
	return out
}

func (e *Event) ours() scheduling.Event {
	out := scheduling.Event{Kind: scheduling.NodeKind, OldNode: e.OldNode, NewNode: e.NewNode}
	if e.OldPod != nil || e.NewPod != nil {
		out.Kind = scheduling.AssignedPod
	}
	if e.Target {
		out.Kind = scheduling.TargetPod
	}
	if e.OldPod != nil {
		out.OldPod = scheduling.NewPod(e.OldPod)
	}
	if e.NewPod != nil {
		out.NewPod = scheduling.NewPod(e.NewPod)
	}
	switch {
	case e.OldPod != nil && e.NewPod != nil:
		out.Action = scheduling.PodUpdate(out.OldPod, out.NewPod)
	case e.OldNode != nil && e.NewNode != nil:
		out.Action = scheduling.NodeUpdate(e.OldNode, e.NewNode)
	case e.OldPod != nil || e.OldNode != nil:
		out.Action = scheduling.Delete
	default:
		out.Action = scheduling.Add
	}
	return out
}

// workloads finds default selectors among the state's objects.
type workloads struct{ *State }

func (w workloads) DefaultSelector(pod *corev1.Pod) labels.Selector {
	set := labels.Set{}
	for _, s := range w.Services {
		if s.Namespace == pod.Namespace && s.Spec.Selector != nil && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			set = labels.Merge(set, s.Spec.Selector)
		}
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return set.AsSelector()
	}
	var own *metav1.LabelSelector
	mine := func(kind string, o metav1.Object) bool {
		return owner.Kind == kind && o.GetNamespace() == pod.Namespace && o.GetName() == owner.Name
	}
	for i := range w.ReplicaSets {
		switch {
		case mine("ReplicationController", w.ReplicationControllers[i]):
			set = labels.Merge(set, w.ReplicationControllers[i].Spec.Selector)
		case mine("ReplicaSet", w.ReplicaSets[i]):
			own = w.ReplicaSets[i].Spec.Selector
		case mine("StatefulSet", w.StatefulSets[i]):
			own = w.StatefulSets[i].Spec.Selector
		}
	}
	selector := set.AsSelector()
	if other, err := metav1.LabelSelectorAsSelector(own); err == nil {
		if requirements, selectable := other.Requirements(); selectable {
			selector = selector.Add(requirements...)
		}
	}
	return selector
}
