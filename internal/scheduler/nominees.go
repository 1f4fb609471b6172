package scheduler

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

// nominees holds the pods that are nominated for a node, where room was made for them. Pods of no higher priority leave that room alone.
type nominees struct {
	byNode map[string][]*scheduling.Pod
	nodeOf map[types.UID]string
	copied map[string][]*scheduling.Pod // byNode as it was returned, until it changes
}

func newNominees() nominees {
	return nominees{byNode: map[string][]*scheduling.Pod{}, nodeOf: map[types.UID]string{}}
}

// set nominates a pod for a node and no other, or for none if the name is empty.
func (n *nominees) set(pod *scheduling.Pod, node string) {
	n.remove(pod.UID)
	if node == "" {
		return
	}
	n.copied = nil
	n.nodeOf[pod.UID] = node
	n.byNode[node] = append(slices.Clip(n.byNode[node]), pod) // readers hold the old slice
}

// update handles a change of a pod. A nomination by this scheduler that the API does not have yet stays.
func (n *nominees) update(old, changed *scheduling.Pod) {
	node := changed.Status.NominatedNodeName
	if node == "" && old.Status.NominatedNodeName == "" {
		node = n.nodeOf[old.UID]
	}
	n.set(changed, node)
}

func (n *nominees) remove(uid types.UID) {
	node, ok := n.nodeOf[uid]
	if !ok {
		return
	}
	n.copied = nil
	delete(n.nodeOf, uid)
	left := slices.DeleteFunc(slices.Clone(n.byNode[node]), func(p *scheduling.Pod) bool { return p.UID == uid })
	if len(left) == 0 {
		delete(n.byNode, node)
	} else {
		n.byNode[node] = left
	}
}

// unnominate removes a pod's nomination.
func (q *queue) unnominate(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.nominees.remove(uid)
}

// nominated returns the pods nominated for each node, nil if there are none. The map does not change.
func (q *queue) nominated() map[string][]*scheduling.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.nominees.byNode) == 0 {
		return nil
	}
	if q.nominees.copied == nil {
		q.nominees.copied = maps.Clone(q.nominees.byNode)
	}
	return q.nominees.copied
}
