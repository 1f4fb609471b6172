package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node that was there before gets what it should have, and keeps what others gave it.
func TestRegisterAgain(t *testing.T) {
	w := newFixture(t)
	w.eventually(func() string { return w.nodeReady(true) })
	w.stop()
	node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Labels["example.com/rack"], node.Labels[corev1.LabelArchStable] = "7", "wrong"
	node.Spec.Unschedulable = true
	if node, err = w.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	node.Status.NodeInfo.BootID = "another"
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "example.com/Other", Status: corev1.ConditionTrue})
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.start(func(o *Options) { o.Labels = map[string]string{"example.com/disk": "ssd"} })
	w.eventually(func() string {
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if node.Labels["example.com/disk"] != "ssd" || node.Labels[corev1.LabelArchStable] == "wrong" || node.Labels["example.com/rack"] != "7" || !node.Spec.Unschedulable {
			return "labels are not mended, or others' are lost"
		}
		if node.Status.NodeInfo.BootID == "another" || len(node.Status.Conditions) != 5 {
			return "the status is not mended, or others' conditions are lost"
		}
		return ""
	})
	w.awaitEvent(nodeName, "Warning Rebooted Node n1 has been rebooted, boot id: ")
}
