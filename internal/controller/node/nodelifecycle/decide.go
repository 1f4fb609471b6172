package nodelifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
	"skiff/internal/controller/node"
)

// conditionTaints holds the NoSchedule taints of node conditions, with the status that they are set for.
var conditionTaints = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
}

// decide returns what a node's taints and labels should be, as far as the node alone determines them.
func decide(n *corev1.Node, now time.Time) controller.Decision {
	add, remove := noSchedule(n)
	moreAdd, moreRemove := swapNoExecute(n)
	actions := node.UpdateTaints(n, append(add, moreAdd...), append(remove, moreRemove...), now)
	if labels := missingLabels(n); len(labels) > 0 {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			panic(fmt.Sprintf("encoding labels: %v", err))
		}
		actions = append(actions, controller.Patch(n, "", types.StrategicMergePatchType, patch))
	}
	return controller.Decision{Actions: actions}
}

// noSchedule returns the NoSchedule taints that this loop manages: those the node should have and those it should not.
func noSchedule(n *corev1.Node) (add, remove []corev1.Taint) {
	put := func(key string, wanted bool) {
		t := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
		if wanted {
			add = append(add, t)
		} else {
			remove = append(remove, t)
		}
	}
	for _, t := range conditionTaints {
		c := node.Condition(n, t.condition)
		put(t.key, c != nil && c.Status == t.status)
	}
	put(corev1.TaintNodeUnschedulable, n.Spec.Unschedulable)
	return add, remove
}

var (
	notReady    = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}
	unreachable = corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
)

// noExecuteFor returns the NoExecute taint for a status of the Ready condition other than True, and the one it replaces.
func noExecuteFor(status corev1.ConditionStatus) (wanted, opposite corev1.Taint) {
	if status == corev1.ConditionFalse {
		return notReady, unreachable
	}
	return unreachable, notReady
}

// swapNoExecute removes NoExecute taints from a node that is ready again, and replaces one by the other if its Ready condition changed between
// False and Unknown. It adds none to a node without: monitor does that, which sees the whole zone.
func swapNoExecute(n *corev1.Node) (add, remove []corev1.Taint) {
	ready := node.Ready(n)
	switch {
	case ready == nil:
		return nil, nil
	case ready.Status == corev1.ConditionTrue:
		return nil, []corev1.Taint{notReady, unreachable}
	}
	wanted, opposite := noExecuteFor(ready.Status)
	if node.HasTaint(n, opposite.Key, opposite.Effect) {
		return []corev1.Taint{wanted}, []corev1.Taint{opposite}
	}
	return nil, nil
}

// oldLabels holds deprecated labels and the labels whose values they must have.
var oldLabels = []struct{ newer, older string }{
	{corev1.LabelOSStable, "beta.kubernetes.io/os"},
	{corev1.LabelArchStable, "beta.kubernetes.io/arch"},
}

func missingLabels(n *corev1.Node) map[string]string {
	missing := map[string]string{}
	for _, l := range oldLabels {
		if value, ok := n.Labels[l.newer]; ok {
			if old, ok := n.Labels[l.older]; !ok || old != value {
				missing[l.older] = value
			}
		}
	}
	return missing
}

// kubeletConditions holds the conditions that become Unknown when a kubelet stops posting. NetworkUnavailable is set by the control plane.
var kubeletConditions = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}

// withUnknownConditions returns a node with the conditions of a kubelet that stopped posting.
func withUnknownConditions(n *corev1.Node, now time.Time) *corev1.Node {
	n = n.DeepCopy()
	since := metav1.NewTime(now)
	for _, kind := range kubeletConditions {
		c := node.Condition(n, kind)
		switch {
		case c == nil:
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionUnknown,
				Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.", LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: since})
		case c.Status != corev1.ConditionUnknown:
			c.Status, c.Reason, c.Message, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", since
		}
	}
	return n
}

// markNotReady sets the Ready condition of a pod on an unreachable node to False.
func markNotReady(pod *corev1.Pod, now time.Time) []controller.Action {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if i < 0 || pod.Status.Conditions[i].Status == corev1.ConditionFalse {
		return nil
	}
	pod = pod.DeepCopy()
	pod.Status.Conditions[i].Status = corev1.ConditionFalse
	pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(now)
	return []controller.Action{controller.UpdateStatus(pod), controller.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")}
}
