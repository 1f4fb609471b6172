package replicaset

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller/owned"
)

// victims chooses the n pods to delete when scaling down, by upstream's order.
func (o *observed) victims(pods []*corev1.Pod, n int, now time.Time) []*corev1.Pod {
	if n >= len(pods) {
		return pods
	}
	onNode := map[string]int{} // active pods of related sets
	for _, pod := range o.related() {
		if owned.Active(pod) {
			onNode[pod.Spec.NodeName]++
		}
	}
	candidates := make([]candidate, len(pods))
	for i, pod := range pods {
		candidates[i] = newCandidate(pod, onNode[pod.Spec.NodeName], now)
	}
	slices.SortFunc(candidates, compare)
	chosen := make([]*corev1.Pod, n)
	for i := range chosen {
		chosen[i] = candidates[i].pod
	}
	return chosen
}

// candidate is a pod with what decides whether it is deleted first.
type candidate struct {
	pod             *corev1.Pod
	assigned        bool
	phase           int
	ready           bool
	cost            int32
	podsOnNode      int // how many pods of related sets are on the same node
	readySince      age
	restarts        int32 // most restarts of any container
	sidecarRestarts int32 // most restarts of any sidecar
	createdSince    age
}

// phases holds the rank of pod phases, in the order in which pods start.
var phases = map[corev1.PodPhase]int{corev1.PodPending: 0, corev1.PodUnknown: 1, corev1.PodRunning: 2}

func newCandidate(pod *corev1.Pod, podsOnNode int, now time.Time) candidate {
	since, ready := owned.ReadySince(pod)
	c := candidate{pod: pod, assigned: pod.Spec.NodeName != "", phase: phases[pod.Status.Phase], ready: ready, cost: deletionCost(pod), podsOnNode: podsOnNode,
		readySince: newAge(since, now), createdSince: newAge(pod.CreationTimestamp, now)}
	for i := range pod.Status.ContainerStatuses {
		c.restarts = max(c.restarts, pod.Status.ContainerStatuses[i].RestartCount)
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if slices.ContainsFunc(pod.Spec.InitContainers, func(init corev1.Container) bool {
			return init.Name == status.Name && init.RestartPolicy != nil && *init.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}) {
			c.sidecarRestarts = max(c.sidecarRestarts, status.RestartCount)
		}
	}
	return c
}

// compare sorts the pod first that is to be deleted first.
func compare(a, b candidate) int {
	for _, c := range []int{
		falseFirst(a.assigned, b.assigned),      // those on no node
		cmp.Compare(a.phase, b.phase),           // those that have not started
		falseFirst(a.ready, b.ready),            // those not ready
		cmp.Compare(a.cost, b.cost),             // those with the lower pod-deletion-cost
		cmp.Compare(b.podsOnNode, a.podsOnNode), // those that share a node with more related pods
	} {
		if c != 0 {
			return c
		}
	}
	if a.ready && b.ready && !a.readySince.at.Equal(b.readySince.at) {
		return younger(a, b, a.readySince, b.readySince)
	}
	if c := cmp.Or(cmp.Compare(b.restarts, a.restarts), cmp.Compare(b.sidecarRestarts, a.sidecarRestarts)); c != 0 {
		return c
	}
	if !a.createdSince.at.Equal(b.createdSince.at) {
		return younger(a, b, a.createdSince, b.createdSince)
	}
	return cmp.Compare(a.pod.Name, b.pod.Name)
}

// falseFirst sorts false before true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// age is a time in the past and its logarithmic age: pods whose ages have the same order of magnitude count as equally old, lest all
// victims come from the part of the cluster that was scaled up last.
type age struct {
	at   time.Time
	log2 int
}

func newAge(at metav1.Time, now time.Time) age {
	m := age{at: at.Time, log2: -1}
	if since := now.Sub(at.Time); since > 0 {
		m.log2 = int(math.Log2(float64(since)))
	}
	return m
}

// younger sorts the younger pod first; among pods of the same logarithmic age, the uid decides. A zero time comes first.
func younger(a, b candidate, at, bt age) int {
	switch {
	case at.at.IsZero():
		return -1
	case bt.at.IsZero():
		return 1
	}
	return cmp.Or(cmp.Compare(at.log2, bt.log2), cmp.Compare(a.pod.UID, b.pod.UID))
}

// deletionCost returns a pod's pod-deletion-cost annotation, or 0 if it is not a plain number.
func deletionCost(pod *corev1.Pod) int32 {
	text := pod.Annotations[corev1.PodDeletionCost]
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil || text[0] == '+' || text[0] == '0' && text != "0" {
		return 0
	}
	return int32(cost)
}
