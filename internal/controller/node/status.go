package node

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

// Event records an Event about a node, which may have been deleted already.
func Event(name string, uid types.UID, reason, what string) controller.Action {
	return controller.Event(about(name, uid), corev1.EventTypeNormal, reason, "Node %s event: %s", name, what)
}

// StatusEvent records an Event that a node's status is now the reason.
func StatusEvent(n *corev1.Node, reason string) controller.Action {
	return controller.Event(about(n.Name, n.UID), corev1.EventTypeNormal, reason, "Node %s status is now: %s", n.Name, reason)
}

// about returns a node without its resourceVersion, so that Events about it are aggregated whatever else changes.
func about(name string, uid types.UID) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
}

// Ready returns a node's Ready condition, or nil.
func Ready(n *corev1.Node) *corev1.NodeCondition { return Condition(n, corev1.NodeReady) }

// Condition returns one of a node's conditions, or nil.
func Condition(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
