//go:build linux

package chaos

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// view is the nodes, with the pods on them that have not terminated, at a time. It is immutable.
type view struct {
	nodes map[string]*corev1.Node
	pods  map[types.UID]*corev1.Pod
}

// rule is the name of a scheduling rule.
type rule string

const (
	room         rule = "room"
	ports        rule = "ports"
	antiAffinity rule = "anti-affinity"
	affinity     rule = "affinity"
	spread       rule = "spread"
	nodeRules    rule = "node"
)

// refusal is the rule that a pod on a node would violate, with the reason.
type refusal struct {
	rule rule
	why  string
}

// refuses returns why a pod must not be bound to a node. The rules are implemented here independently of the scheduler's code, so that an error
// there is not repeated here.
func (v view) refuses(pod *corev1.Pod, name string) (out []refusal) {
	node := v.nodes[name]
	if node == nil {
		return []refusal{{nodeRules, "there is no such node"}}
	}
	for _, check := range []struct {
		rule  rule
		judge func(*corev1.Pod, *corev1.Node) string
	}{{nodeRules, v.nodeRefuses}, {room, v.hasNoRoom}, {ports, v.portsClash}, {antiAffinity, v.repelled}, {affinity, v.unattracted}, {spread, v.crowded}} {
		if why := check.judge(pod, node); why != "" {
			out = append(out, refusal{check.rule, why})
		}
	}
	return out
}

func (v view) nodeRefuses(pod *corev1.Pod, node *corev1.Node) string {
	if node.Spec.Unschedulable {
		return "it is cordoned"
	}
	for _, taint := range node.Spec.Taints {
		tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == "" || t.Key == taint.Key) && (t.Effect == "" || t.Effect == taint.Effect) && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
		})
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated {
			return "it has the taint " + taint.ToString()
		}
	}
	if !wants(pod, node) {
		return "its labels are not those that the pod asks for"
	}
	return ""
}

// wants reports whether a pod's node selector and required node affinity match a node.
func wants(pod *corev1.Pod, node *corev1.Node) bool {
	for key, value := range pod.Spec.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return slices.ContainsFunc(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
			for _, e := range term.MatchExpressions {
				value, has := node.Labels[e.Key]
				if !map[corev1.NodeSelectorOperator]bool{corev1.NodeSelectorOpIn: has && slices.Contains(e.Values, value),
					corev1.NodeSelectorOpNotIn: !slices.Contains(e.Values, value), corev1.NodeSelectorOpExists: has, corev1.NodeSelectorOpDoesNotExist: !has}[e.Operator] {
					return false
				}
			}
			return true
		})
	}
	return true
}

// on returns the pods on a node.
func (v view) on(node string) (out []*corev1.Pod) {
	for _, p := range v.pods {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

// needs returns the sum of a pod's resource requests.
func needs(pod *corev1.Pod, into map[corev1.ResourceName]resource.Quantity) {
	add := func(name corev1.ResourceName, q resource.Quantity) {
		sum := into[name]
		sum.Add(q)
		into[name] = sum
	}
	of := map[corev1.ResourceName]resource.Quantity{}
	for _, c := range pod.Spec.Containers {
		for name, q := range c.Resources.Requests {
			sum := of[name]
			sum.Add(q)
			of[name] = sum
		}
	}
	for _, c := range pod.Spec.InitContainers { // they run before, one after the other
		for name, q := range c.Resources.Requests {
			if most := of[name]; most.Cmp(q) < 0 {
				of[name] = q
			}
		}
	}
	for name, q := range of {
		add(name, q)
	}
	add(corev1.ResourcePods, resource.MustParse("1"))
}

func (v view) hasNoRoom(pod *corev1.Pod, node *corev1.Node) string {
	used := map[corev1.ResourceName]resource.Quantity{}
	for _, p := range append(v.on(node.Name), pod) {
		needs(p, used)
	}
	for name, q := range used {
		if has := node.Status.Allocatable[name]; q.Cmp(has) > 0 {
			return fmt.Sprintf("%s of %s would be taken, it has %s", &q, name, &has)
		}
	}
	return ""
}

func (v view) portsClash(pod *corev1.Pod, node *corev1.Node) string {
	for _, other := range v.on(node.Name) {
		for _, a := range portsOf(pod) {
			for _, b := range portsOf(other) {
				if a.HostPort == b.HostPort && a.Protocol == b.Protocol && (a.HostIP == b.HostIP || anyIP(a.HostIP) || anyIP(b.HostIP)) {
					return fmt.Sprintf("port %d is taken by %s/%s", a.HostPort, other.Namespace, other.Name)
				}
			}
		}
	}
	return ""
}

func anyIP(ip string) bool { return ip == "" || ip == "0.0.0.0" }

func portsOf(pod *corev1.Pod) (out []corev1.ContainerPort) {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				out = append(out, p)
			}
		}
	}
	return out
}

// term is a pod affinity or anti-affinity term.
func matches(term corev1.PodAffinityTerm, by, other *corev1.Pod) bool {
	if len(term.Namespaces) == 0 && other.Namespace != by.Namespace || len(term.Namespaces) > 0 && !slices.Contains(term.Namespaces, other.Namespace) {
		return false
	}
	return selects(term.LabelSelector, other)
}

func selects(s *metav1.LabelSelector, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// near reports whether two nodes are in the same topology domain.
func near(a, b *corev1.Node, key string) bool {
	if a == nil || b == nil {
		return false
	}
	x, hasX := a.Labels[key]
	y, hasY := b.Labels[key]
	return hasX && hasY && x == y
}

func antiTerms(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// repelled returns which anti-affinity a binding would violate, of this pod or of another; empty if none.
func (v view) repelled(pod *corev1.Pod, node *corev1.Node) string {
	for _, other := range v.pods {
		there := v.nodes[other.Spec.NodeName]
		for _, term := range antiTerms(pod) {
			if near(node, there, term.TopologyKey) && matches(term, pod, other) {
				return fmt.Sprintf("it must not be near %s/%s on %s", other.Namespace, other.Name, other.Spec.NodeName)
			}
		}
		for _, term := range antiTerms(other) {
			if near(node, there, term.TopologyKey) && matches(term, other, pod) {
				return fmt.Sprintf("%s/%s on %s must not have it near", other.Namespace, other.Name, other.Spec.NodeName)
			}
		}
	}
	return ""
}

// unattracted returns which pod affinity a binding would violate. The first of pods with affinity to one another may be bound anywhere.
func (v view) unattracted(pod *corev1.Pod, node *corev1.Node) string {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		found, anywhere := false, false
		for _, other := range v.pods {
			if matches(term, pod, other) {
				anywhere = true
				found = found || near(node, v.nodes[other.Spec.NodeName], term.TopologyKey)
			}
		}
		if !found && (anywhere || !matches(term, pod, pod)) {
			return fmt.Sprintf("nothing of %s is near", metav1.FormatLabelSelector(term.LabelSelector))
		}
	}
	return ""
}

// crowded returns which topology spread constraint a binding would violate.
func (v view) crowded(pod *corev1.Pod, node *corev1.Node) string {
	var keys []string
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			keys = append(keys, c.TopologyKey)
		}
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		counts := map[string]int{}
		for _, n := range v.nodes {
			if wants(pod, n) && !slices.ContainsFunc(keys, func(key string) bool { _, has := n.Labels[key]; return !has }) {
				counts[n.Labels[c.TopologyKey]] += 0
			}
		}
		for _, other := range v.pods {
			if n := v.nodes[other.Spec.NodeName]; n != nil && other.Namespace == pod.Namespace && other.DeletionTimestamp == nil && selects(c.LabelSelector, other) && wants(pod, n) {
				if place, has := n.Labels[c.TopologyKey]; has {
					if _, eligible := counts[place]; eligible {
						counts[place]++
					}
				}
			}
		}
		here, has := node.Labels[c.TopologyKey]
		if !has {
			return "the node has no " + c.TopologyKey
		}
		least := math.MaxInt
		for _, n := range counts {
			least = min(least, n)
		}
		if c.MinDomains != nil && len(counts) < int(*c.MinDomains) {
			least = 0
		}
		after := counts[here]
		if selects(c.LabelSelector, pod) {
			after++
		}
		if after-least > int(c.MaxSkew) {
			return fmt.Sprintf("%d in %s, %d elsewhere", after, here, least)
		}
	}
	return ""
}

// with returns the view with a further pod.
func (v view) with(pod *corev1.Pod) view {
	pods := maps.Clone(v.pods)
	pods[pod.UID] = pod
	return view{v.nodes, pods}
}
