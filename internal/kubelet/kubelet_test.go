package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod is started, reported as running and ready, and leaves nothing behind when it is deleted.
func TestPodLife(t *testing.T) {
	w := newFixture(t)
	w.create("web", "{containers: [{name: nginx, image: nginx, imagePullPolicy: IfNotPresent}]}")
	pod := w.await("web", ready)
	if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" || pod.Status.HostIP != "192.0.2.1" || pod.Status.StartTime == nil {
		t.Errorf("status %+v", pod.Status)
	}
	w.awaitEvent("web", `Normal Pulled Container image "nginx" already present on machine`)
	w.awaitEvent("web", "Normal Created Container created")
	w.awaitEvent("web", "Normal Started Container started")
	w.delete("web", 30)
	w.awaitGone("web")
	w.awaitEvent("web", "Normal Killing Stopping container nginx")
	w.awaitClean()
}

// The node registers with all there is to know about it, and renews its lease.
func TestRegister(t *testing.T) {
	w := newFixture(t)
	var node *corev1.Node
	w.eventually(func() string {
		var err error
		if node, err = w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return "the node is not ready"
	})
	if node.Status.Capacity.Cpu().IsZero() || node.Status.Allocatable.Memory().IsZero() || node.Status.Capacity.Pods().Value() != 110 {
		t.Errorf("capacity %v, allocatable %v", node.Status.Capacity, node.Status.Allocatable)
	}
	if node.Status.NodeInfo.ContainerRuntimeVersion != "containerd://2.4.2" || node.Status.NodeInfo.KernelVersion == "" || node.Labels[corev1.LabelHostname] != nodeName {
		t.Errorf("node %+v", node)
	}
	w.eventually(func() string {
		if _, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), nodeName, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// A running kubelet rotates a full log by itself.
func TestFullLogsAreRotated(t *testing.T) {
	w := newFixture(t)
	pod := w.create("web", "{containers: [{name: a, image: nginx}]}")
	w.await("web", ready)
	path := filepath.Join(w.kubelet.logs.PodDir(pod), "a", "0.log")
	if err := os.WriteFile(path, make([]byte, 10<<20+1), 0o640); err != nil {
		t.Fatal(err)
	}
	w.eventually(func() string {
		files, err := filepath.Glob(path + ".*")
		if err != nil || len(files) != 1 {
			return fmt.Sprintf("rotated: %v %v", files, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > 0 {
			return fmt.Sprintf("the log was not reopened: %v", err)
		}
		return ""
	})
}
