package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

// byApp spreads pods by their label app, as if each app had a Service.
type byApp struct{}

func (byApp) DefaultSelector(pod *corev1.Pod) labels.Selector {
	if app := pod.Labels["app"]; app != "" {
		return labels.SelectorFromSet(labels.Set{"app": app})
	}
	return labels.Everything()
}

// randomCluster is a changing cluster in which everything that plugins depend on occurs.
type randomCluster struct {
	*rand.Rand
	*cluster
	nodes, made int
	pods        []*scheduling.Pod // on nodes
}

func (r *randomCluster) choose(values ...string) string { return values[r.IntN(len(values))] }

func (r *randomCluster) node(i int) *corev1.Node {
	name := fmt.Sprint("n", i)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, "disk": r.choose("ssd", "hdd")}}}
	if r.IntN(4) > 0 {
		n.Labels[corev1.LabelTopologyZone] = r.choose("a", "b", "c")
	}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(r.choose("2", "4", "8")), "memory": resource.MustParse(r.choose("4Gi", "16Gi")),
		"pods": resource.MustParse(r.choose("5", "110"))}
	if r.IntN(5) == 0 {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: r.choose("x", "y"), Effect: corev1.TaintEffect(r.choose("NoSchedule", "PreferNoSchedule"))})
	}
	if r.IntN(3) == 0 {
		image := r.choose("one:1", "two:1") // of the same size everywhere: if nodes disagree, the first one counts
		n.Status.Images = []corev1.ContainerImage{{Names: []string{image}, SizeBytes: int64(image[0]-'a') * 50 << 20}}
	}
	n.Spec.Unschedulable = r.IntN(20) == 0
	return n
}

// template returns one of the pod shapes, by number.
func (r *randomCluster) pod(template int) *scheduling.Pod {
	t := &randomCluster{Rand: rand.New(rand.NewPCG(uint64(template), 7))}
	r.made++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", r.made), UID: types.UID(fmt.Sprint(r.made)), Labels: map[string]string{"app": t.choose("a", "b", "c")}},
		Spec: corev1.PodSpec{SchedulerName: defaultSchedulerName, Containers: []corev1.Container{{Name: "c", Image: t.choose("one:1", "two:1", "three:1"),
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(t.choose("0", "100m", "500m", "2")), "memory": resource.MustParse(t.choose("0", "1Gi"))}}}}}}
	if t.IntN(3) == 0 {
		priority := int32(t.IntN(3))
		p.Spec.Priority = &priority
	}
	if t.IntN(4) == 0 {
		p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	if t.IntN(4) == 0 {
		p.Spec.Tolerations = []corev1.Toleration{{Key: t.choose("x", "y"), Operator: corev1.TolerationOpExists}}
	}
	if t.IntN(6) == 0 {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": t.choose("a", "b", "c")}}
	term := corev1.PodAffinityTerm{LabelSelector: selector, TopologyKey: t.choose(corev1.LabelHostname, corev1.LabelTopologyZone)}
	a := &corev1.Affinity{}
	switch t.IntN(8) {
	case 0:
		a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	case 1:
		a.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 10, PodAffinityTerm: term}}}
	case 2:
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	case 3:
		a.NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 5, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"hdd"}}}}}}}
	}
	p.Spec.Affinity = a
	if t.IntN(4) == 0 {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: t.choose(corev1.LabelHostname, corev1.LabelTopologyZone),
			WhenUnsatisfiable: corev1.UnsatisfiableConstraintAction(t.choose("DoNotSchedule", "ScheduleAnyway")), LabelSelector: selector}}
	}
	return scheduling.NewPod(p)
}

// change makes a random change.
func (r *randomCluster) change() {
	switch r.IntN(10) {
	case 0:
		r.putNode(r.node(r.nodes))
		r.nodes++
	case 1:
		r.removeNode(fmt.Sprint("n", r.IntN(r.nodes)))
	case 2:
		r.putNode(r.node(r.IntN(r.nodes)))
	case 3, 4, 5:
		if len(r.pods) > 0 {
			i := r.IntN(len(r.pods))
			r.removePod(r.pods[i].UID)
			r.pods = slices.Delete(r.pods, i, i+1)
		}
	}
}

// put puts a pod on a node.
func (r *randomCluster) put(p *scheduling.Pod, node string) {
	object := *p.Pod
	object.Spec.NodeName = node
	on := scheduling.NewPod(&object)
	r.putPod(on)
	r.pods = append(r.pods, on)
}

// Decisions with the result cache are those without it, and both are what the plugins say one by one, on clusters that change all the time.
func TestMemoryChangesNothing(t *testing.T) {
	var bound atomic.Int64
	t.Cleanup(func() {
		if n := bound.Load(); n < 500 {
			t.Errorf("only %d pods were scheduled in all rounds", n)
		}
	})
	for round := range 15 {
		seed := uint64(round)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			profiles, _ := defaultProfiles(t, nil)
			profile := profiles[defaultSchedulerName]
			r := &randomCluster{Rand: rand.New(rand.NewPCG(seed, 1)), cluster: newCluster(byApp{})}
			for ; r.nodes < 20+r.IntN(130); r.nodes++ {
				r.putNode(r.node(r.nodes))
			}
			templates := 1 + r.IntN(6)
			first := r.IntN(1000)
			with, without := &cycle{}, &cycle{}
			without.results.disabled = true
			for range 150 {
				for range r.IntN(3) {
					r.change()
				}
				pod := r.pod(first + r.IntN(templates))
				v := view{}
				v.snapshot, v.order = r.snapshot()
				if r.IntN(5) == 0 { // a pod is nominated
					waiting := r.pod(first + r.IntN(templates))
					v.nominated = map[string][]*scheduling.Pod{fmt.Sprint("n", r.IntN(r.nodes)): {waiting}}
				}
				want, wantErr := oneByOne(without, profile, pod, v)
				plain, plainErr := without.decide(profile, pod, v)
				got, err := with.decide(profile, pod, v)
				if a, b, c := describe(want, wantErr), describe(plain, plainErr), describe(got, err); a != b || a != c {
					t.Fatalf("pod %s, seed %d:\none by one: %s\nplain:      %s\nmemory:     %s", pod.Name, seed, a, b, c)
				}
				if with.start != without.start || with.turn != without.turn {
					t.Fatalf("pod %s, seed %d: the next pod would be treated differently", pod.Name, seed)
				}
				if got.node != nil {
					bound.Add(1)
					r.put(pod, got.node.Name)
				}
			}
		})
	}
}

func describe(o outcome, err error) string {
	if err != nil {
		return "error " + err.Error()
	}
	s := "nowhere"
	if o.node != nil {
		s = o.node.Name
	}
	s += fmt.Sprintf(" of %d: positions %v plugins %v scores %v refused by %b:", o.nodes, o.positions, o.plugins, o.scores, o.refusedBy)
	for _, r := range o.refused {
		s += fmt.Sprintf(" %d %s %s", r.at, r.verdict.Plugin, r.verdict.Message())
	}
	return s + " " + o.message()
}

// oneByOne decides in the simplest way: every plugin about every node, anew, on a snapshot that was built from scratch. It does not change the cycle.
func oneByOne(c *cycle, p *profile, pod *scheduling.Pod, v view) (out outcome, err error) {
	out.nodes = len(v.snapshot.Nodes())
	if out.nodes == 0 {
		return out, errNoNodes
	}
	var copies []*scheduling.Node
	for _, n := range v.snapshot.Nodes() {
		var pods []*scheduling.Pod
		for _, p := range n.Pods {
			pods = append(pods, scheduling.NewPod(p.Pod))
		}
		copies = append(copies, scheduling.NewNode(n.Node, pods...))
	}
	scratch := scheduling.NewSnapshot(byApp{}).Update(copies, nil)
	var nodes []*scheduling.Node // in the order that counts
	for _, name := range v.order.names {
		nodes = append(nodes, scratch.Node(name))
	}
	s, err := prepare(p, pod, view{snapshot: scratch, nominated: v.nominated}, &out.diagnosis)
	if err != nil || s == nil {
		return out, err
	}
	var feasible []*scheduling.Node
	var positions []int32
	for i := range nodes {
		at := (c.start + i) % len(nodes)
		crowded, checks := nodes[at], cloneChecks(s.checks)
		for _, n := range v.nominated[crowded.Name] {
			if n.Priority >= pod.Priority {
				crowded = crowded.With(n)
				addPod(checks, n, crowded)
			}
		}
		var refused *verdict
		for _, k := range checks {
			if status := k.Filter(crowded); refused == nil && !status.OK() {
				refused = &verdict{status, k.index}
			}
		}
		for _, k := range s.checks {
			if status := k.Filter(nodes[at]); refused == nil && !status.OK() {
				refused = &verdict{status, k.index}
			}
		}
		if refused != nil {
			out.refuse(int32(at), refused, p.filterBits[refused.index])
			continue
		}
		feasible, positions = append(feasible, nodes[at]), append(positions, int32(at))
		if len(feasible) == s.numFeasibleNodesToFind(len(nodes)) {
			break
		}
	}
	if len(feasible) < 2 {
		if len(feasible) == 1 {
			out.node = feasible[0]
		}
		return out, nil
	}
	out.positions = positions
	totals := make([]int64, len(feasible))
	for _, plugin := range p.Scores {
		scorer, status := plugin.PreScore(pod, scratch, feasible)
		if !status.OK() {
			return out, asError(status)
		}
		if scorer == nil {
			continue
		}
		scores := make([]int64, len(feasible))
		scorer.Score(feasible, scores)
		scorer.Normalize(feasible, scores)
		for i := range scores {
			totals[i] += scores[i] * plugin.Weight
			out.scores = append(out.scores, uint8(scores[i]))
		}
		out.plugins = append(out.plugins, plugin.Name())
	}
	// The best node is taken, and of equal ones the first from the turn on.
	for i := range nodes {
		at := int32((min(c.turn, len(nodes)) + i) % len(nodes))
		if j := slices.Index(positions, at); j >= 0 && totals[j] == slices.Max(totals) {
			out.node = feasible[j]
			return out, nil
		}
	}
	return out, nil
}
