package schedulingtest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// State is a cluster, pods to be scheduled in it, and changes to it.
type State struct {
	Seed                   uint64
	Nodes                  []*corev1.Node
	Pods                   []*corev1.Pod // pods that are on nodes
	Namespaces             []*corev1.Namespace
	Services               []*corev1.Service
	ReplicationControllers []*corev1.ReplicationController
	ReplicaSets            []*appsv1.ReplicaSet
	StatefulSets           []*appsv1.StatefulSet
	Profile                schedv1.KubeSchedulerProfile // with arguments of plugins
	Incoming               []Incoming
}

// Incoming is a pod to be scheduled and what is asked about it.
type Incoming struct {
	Pod *corev1.Pod
	// Feasible holds the nodes that are scored, by index.
	Feasible []int
	// Moves are made before the filters are called again.
	Moves []Move
	// Events are changes that may or may not requeue the pod.
	Events []Event
}

// Move removes a pod from a node or adds one, as preemption does.
type Move struct {
	Node int
	Pod  *corev1.Pod
	Add  bool
}

// Event is a change of a pod or a node: only New is set if it was added, only Old if it was deleted.
type Event struct {
	OldPod, NewPod   *corev1.Pod
	OldNode, NewNode *corev1.Node
	Target           bool // it is the incoming pod itself
}

// New returns the state of a seed, always the same.
func New(seed uint64) *State {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x5ced)), state: &State{Seed: seed}}
	g.workloads()
	for i := range g.between(3, 14) {
		g.state.Nodes = append(g.state.Nodes, g.node(fmt.Sprintf("node-%02d", i)))
	}
	g.state.Profile = g.profile()
	for i := range g.between(0, 40) {
		p := g.pod(fmt.Sprintf("on-%d", i))
		p.Spec.NodeName = pick(g, g.state.Nodes...).Name
		if g.chance(8) {
			p.DeletionTimestamp = &metav1.Time{}
		}
		g.dropTakenPorts(p)
		g.setAllocated(p)
		g.state.Pods = append(g.state.Pods, p)
	}
	for i := range 2 {
		g.state.Incoming = append(g.state.Incoming, g.incoming(fmt.Sprintf("new-%d", i)))
	}
	return g.state
}

// dropTakenPorts removes host ports from a pod that another on its node has: no two pods run like that.
func (g *generator) dropTakenPorts(p *corev1.Pod) {
	ports := func(p *corev1.Pod) (out []int32) {
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			for _, port := range c.Ports {
				out = append(out, port.HostPort)
			}
		}
		return out
	}
	mine := ports(p)
	for _, other := range g.state.Pods {
		if other.Spec.NodeName != p.Spec.NodeName || !slices.ContainsFunc(ports(other), func(port int32) bool { return slices.Contains(mine, port) }) {
			continue
		}
		for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range containers {
				containers[i].Ports = nil
			}
		}
	}
}

// generator draws random objects from a seed.
type generator struct {
	*rand.Rand
	state *State
}

// between returns a number of the range, both ends included.
func (g *generator) between(low, high int) int { return low + g.IntN(high-low+1) }

// chance returns true in percent of the cases.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// some returns a random subset.
func some[T any](g *generator, percent int, from ...T) []T {
	var out []T
	for _, v := range from {
		if g.chance(percent) {
			out = append(out, v)
		}
	}
	return out
}

// The pools of names and labels are small, so that objects match each other.
var (
	namespaces   = []string{"default", "team-a", "team-b"}
	apps         = []string{"web", "db", "cache"}
	tiers        = []string{"front", "back"}
	topologyKeys = []string{corev1.LabelHostname, corev1.LabelTopologyZone, "rack"}
	images       = []string{"nginx", "nginx:1.25", "registry.example:5000/app", "registry.example:5000/app:v2", "big:latest", "small:1"}
	imageSizes   = map[string]int64{"nginx:latest": 150 << 20, "nginx:1.25": 140 << 20, "registry.example:5000/app:latest": 700 << 20,
		"registry.example:5000/app:v2": 710 << 20, "big:latest": 3 << 30, "small:1": 5 << 20}
)

func (g *generator) labels() map[string]string {
	out := map[string]string{}
	if g.chance(90) {
		out["app"] = pick(g, apps...)
	}
	if g.chance(70) {
		out["tier"] = pick(g, tiers...)
	}
	if g.chance(30) {
		out["pod-template-hash"] = pick(g, "h1", "h2")
	}
	return out
}

func (g *generator) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	switch g.IntN(12) {
	case 0:
		return nil
	case 1: // everything
	case 2:
		s.MatchLabels = map[string]string{"tier": pick(g, tiers...)}
	case 3:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: some(g, 60, apps...)}}
		if len(s.MatchExpressions[0].Values) == 0 && !g.chance(20) {
			s.MatchExpressions[0].Values = apps[:1]
		}
	case 4:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: apps[:1]}}
	case 5:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: pick(g, "app", "tier"), Operator: pick(g, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}}
	default:
		s.MatchLabels = map[string]string{"app": pick(g, apps...)}
		if g.chance(30) {
			s.MatchLabels["tier"] = pick(g, tiers...)
		}
	}
	return s
}

func (g *generator) workloads() {
	for _, name := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if g.chance(70) {
			ns.Labels["team"] = pick(g, "a", "b")
		}
		g.state.Namespaces = append(g.state.Namespaces, ns)
		for i := range g.between(0, 2) {
			meta := metav1.ObjectMeta{Name: fmt.Sprintf("w%d", i), Namespace: name}
			selector := map[string]string{"app": pick(g, apps...)}
			if g.chance(20) {
				selector = nil
			}
			g.state.Services = append(g.state.Services, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: selector}})
			g.state.ReplicationControllers = append(g.state.ReplicationControllers, &corev1.ReplicationController{ObjectMeta: meta,
				Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"tier": pick(g, tiers...)}}})
			g.state.ReplicaSets = append(g.state.ReplicaSets, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: g.selector()}})
			g.state.StatefulSets = append(g.state.StatefulSets, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: g.selector()}})
		}
	}
}

func (g *generator) owner() []metav1.OwnerReference {
	kind := pick(g, schemaKind{"v1", "ReplicationController"}, schemaKind{"apps/v1", "ReplicaSet"}, schemaKind{"apps/v1", "StatefulSet"}, schemaKind{"batch/v1", "Job"})
	yes := true
	return []metav1.OwnerReference{{APIVersion: kind.version, Kind: kind.kind, Name: pick(g, "w0", "w1"), UID: "owner", Controller: &yes}}
}

type schemaKind struct{ version, kind string }

func uid(name string) types.UID { return types.UID("uid-" + name) }
