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

// victims chooses the pods whose end hurts least.
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

// candidate is a pod with what speaks for and against deleting it.
type candidate struct {
	pod          *corev1.Pod
	assigned     bool
	phase        int
	ready        bool
	cost         int32
	together     int // how many of its kind are on the same node
	readySince   moment
	restarts     int32 // of its containers, the most
	sidecarsToo  int32
	createdSince moment
}

// phases in the order in which pods come up.
var phases = map[corev1.PodPhase]int{corev1.PodPending: 0, corev1.PodUnknown: 1, corev1.PodRunning: 2}

func newCandidate(pod *corev1.Pod, together int, now time.Time) candidate {
	since, ready := owned.ReadySince(pod)
	c := candidate{pod: pod, assigned: pod.Spec.NodeName != "", phase: phases[pod.Status.Phase], ready: ready, cost: deletionCost(pod), together: together,
		readySince: newMoment(since, now), createdSince: newMoment(pod.CreationTimestamp, now)}
	for i := range pod.Status.ContainerStatuses {
		c.restarts = max(c.restarts, pod.Status.ContainerStatuses[i].RestartCount)
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if slices.ContainsFunc(pod.Spec.InitContainers, func(init corev1.Container) bool {
			return init.Name == status.Name && init.RestartPolicy != nil && *init.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}) {
			c.sidecarsToo = max(c.sidecarsToo, status.RestartCount)
		}
	}
	return c
}

// compare puts the pod first that is rather to be deleted.
func compare(a, b candidate) int {
	for _, c := range []int{
		no(a.assigned, b.assigned),          // those on no node
		cmp.Compare(a.phase, b.phase),       // those that have not come up
		no(a.ready, b.ready),                // those not ready
		cmp.Compare(a.cost, b.cost),         // those whose owner says that they are cheap
		cmp.Compare(b.together, a.together), // those that share a node with more of their kind
	} {
		if c != 0 {
			return c
		}
	}
	if a.ready && b.ready && !a.readySince.at.Equal(b.readySince.at) {
		return younger(a, b, a.readySince, b.readySince)
	}
	if c := cmp.Or(cmp.Compare(b.restarts, a.restarts), cmp.Compare(b.sidecarsToo, a.sidecarsToo)); c != 0 {
		return c
	}
	if !a.createdSince.at.Equal(b.createdSince.at) {
		return younger(a, b, a.createdSince, b.createdSince)
	}
	return cmp.Compare(a.pod.Name, b.pod.Name)
}

// no puts the one first of which something does not hold.
func no(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// moment is a time in the past and its logarithmic age: pods whose ages have the same order of magnitude count as equally old, lest all
// victims come from the part of the cluster that was scaled up last.
type moment struct {
	at  time.Time
	age int
}

func newMoment(at metav1.Time, now time.Time) moment {
	m := moment{at: at.Time, age: -1}
	if since := now.Sub(at.Time); since > 0 {
		m.age = int(math.Log2(float64(since)))
	}
	return m
}

// younger puts the pod first whose moment is less long ago; among equals, chance (the uid) decides. No moment at all comes first.
func younger(a, b candidate, at, bt moment) int {
	switch {
	case at.at.IsZero():
		return -1
	case bt.at.IsZero():
		return 1
	}
	return cmp.Or(cmp.Compare(at.age, bt.age), cmp.Compare(a.pod.UID, b.pod.UID))
}

// deletionCost is what a pod's annotation says about it. What is not a plain number counts as nothing.
func deletionCost(pod *corev1.Pod) int32 {
	text := pod.Annotations[corev1.PodDeletionCost]
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil || text[0] == '+' || text[0] == '0' && text != "0" {
		return 0
	}
	return int32(cost)
}
