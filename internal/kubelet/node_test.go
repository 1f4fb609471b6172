package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node that was there before gets what it should have, and keeps what others gave it.
func TestRegisterAgain(t *testing.T) {
	w := newWorld(t)
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

// A node that somebody deletes stays deleted until its kubelet is started anew.
func TestNodeDeleted(t *testing.T) {
	w := newWorld(t)
	w.eventually(func() string { return w.nodeReady(true) })
	if err := w.client.CoreV1().Nodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.kubelet.node.mu.Lock()
	w.kubelet.node.reported = w.kubelet.node.reported.Add(-nodeReportEvery * 2)
	w.kubelet.node.mu.Unlock()
	if err := w.kubelet.reportNode(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("reporting a node that is gone: %v", err)
	}
	w.stop()
	w.start()
	w.eventually(func() string { return w.nodeReady(true) })
}

// A lease is not renewed before the node has reported: who sees it renewed may believe what the node says of itself.
func TestLeaseAfterReport(t *testing.T) {
	k := &Kubelet{}
	if k.node.registered = (&corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u"}}); k.reportedUID() != "" {
		t.Error("it would be renewed for a node that was registered by another process")
	}
	if k.nodeReported(k.node.registered); k.reportedUID() != "u" {
		t.Error("it would not be renewed for a node that has reported")
	}
}
