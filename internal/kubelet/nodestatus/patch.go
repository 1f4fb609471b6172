package nodestatus

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// recordConditions records an Event for each condition of the node that changed.
func (m *Manager) recordConditions(before, after *corev1.Node) {
	isTrue := func(n *corev1.Node, condition corev1.NodeConditionType) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition && c.Status == corev1.ConditionTrue })
	}
	for condition, reasons := range map[corev1.NodeConditionType]struct{ ifTrue, ifFalse string }{
		corev1.NodeReady:          {"NodeReady", "NodeNotReady"},
		corev1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		corev1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		corev1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
	} {
		if isTrue(before, condition) == isTrue(after, condition) {
			continue
		}
		reason := reasons.ifFalse
		if isTrue(after, condition) {
			reason = reasons.ifTrue
		}
		m.recorder.Eventf(m.Ref(), corev1.EventTypeNormal, reason, "Node %s status is now: %s", m.options.NodeName, reason)
	}
}

// recordSchedulable records an Event when the node was cordoned or uncordoned.
func (m *Manager) recordSchedulable(node *corev1.Node) {
	m.mu.Lock()
	changed := m.unschedulable != node.Spec.Unschedulable
	m.unschedulable = node.Spec.Unschedulable
	m.mu.Unlock()
	reason := "NodeSchedulable"
	if node.Spec.Unschedulable {
		reason = "NodeNotSchedulable"
	}
	if changed {
		m.recorder.Eventf(m.Ref(), corev1.EventTypeNormal, reason, "Node %s status is now: %s", node.Name, reason)
	}
}

// statusPatch returns the strategic merge patch that gives the node a status.
func statusPatch(node *corev1.Node, status *corev1.NodeStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Node{Status: *node.Status.DeepCopy()})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Node{Status: *status})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("failed to compute the patch of the node's status: %w", err)
	}
	// Addresses have no key that they could be merged by: all of them are sent.
	var fields map[string]map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}
	if fields["status"]["addresses"] != nil {
		all := []any{map[string]any{"$patch": "replace"}}
		for _, a := range status.Addresses {
			all = append(all, a)
		}
		fields["status"]["addresses"] = all
		return json.Marshal(fields)
	}
	return patch, nil
}

// statusEqual reports whether two statuses are equal, apart from the times of heartbeats and the order of conditions.
func statusEqual(a, b *corev1.NodeStatus) bool {
	normalized := func(s *corev1.NodeStatus) corev1.NodeStatus {
		c := *s
		c.Conditions = slices.Clone(c.Conditions)
		for i := range c.Conditions {
			c.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		slices.SortFunc(c.Conditions, func(x, y corev1.NodeCondition) int { return strings.Compare(string(x.Type), string(y.Type)) })
		return c
	}
	return equality.Semantic.DeepEqual(normalized(a), normalized(b))
}
