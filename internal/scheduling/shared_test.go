package scheduling

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// TestSharedCountsAreBounded uses more selectors, topology keys and values than are kept.
func TestSharedCountsAreBounded(t *testing.T) {
	t.Parallel()
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}}
	}
	s := NewSnapshot(nil).Update([]*Node{NewNode(node(nil))}, nil)
	h := s.home
	spread := newPodTopologySpread(&schedv1.PodTopologySpreadArgs{DefaultingType: schedv1.ListDefaulting})
	for i := range 2000 {
		s = s.Update([]*Node{s.Node("a").WithNode(node(map[string]string{"rack": fmt.Sprint(i)}))}, nil)
		key := "rack"
		if i > 1500 {
			key = fmt.Sprint("key-", i)
		}
		spread.PreFilter(NewPod(&corev1.Pod{Spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: key, MaxSkew: 1,
			WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}}}}}), s)
		values := 0
		if d := h.domains["rack"]; d != nil {
			values = len(d.ids)
		}
		if len(h.tallies) > maxTallies || len(h.domains) > maxTopologyKeys+1 || values > 2+spareDomains+1 {
			t.Fatalf("after %d: %d tallies, %d keys, %d values", i, len(h.tallies), len(h.domains), values)
		}
	}
	if h.slots != 1 {
		t.Errorf("one node has %d slots", h.slots)
	}
}
