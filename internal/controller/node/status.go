package node

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

// Event tells people what a loop did about a node, which may be gone already.
func Event(name string, uid types.UID, reason, what string) controller.Action {
	return controller.Event(about(name, uid), corev1.EventTypeNormal, reason, "Node %s event: %s", name, what)
}

// StatusEvent tells people that a node is now what the reason says.
func StatusEvent(n *corev1.Node, reason string) controller.Action {
	return controller.Event(about(n.Name, n.UID), corev1.EventTypeNormal, reason, "Node %s status is now: %s", n.Name, reason)
}

// about is a node without its version: what happens to a node is one story, whatever else changes.
func about(name string, uid types.UID) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
}

// Ready is a node's Ready condition; nil if nobody has posted one.
func Ready(n *corev1.Node) *corev1.NodeCondition { return Condition(n, corev1.NodeReady) }

// Condition is one of a node's conditions; nil if nobody has posted it.
func Condition(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
