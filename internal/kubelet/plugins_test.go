package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// imaginaryDriver is a CSI driver that says where it runs.
type imaginaryDriver struct {
	csispec.UnimplementedNodeServer
}

func (imaginaryDriver) NodeGetInfo(context.Context, *csispec.NodeGetInfoRequest) (*csispec.NodeGetInfoResponse, error) {
	return &csispec.NodeGetInfoResponse{NodeId: "here", MaxVolumesPerNode: 3,
		AccessibleTopology: &csispec.Topology{Segments: map[string]string{"topology.test/host": "here"}}}, nil
}

// A driver that runs in this process is in the CSINode and the Node as one that has registered by its socket would be.
func TestCSIDriverInProcess(t *testing.T) {
	w := newFixture(t)
	w.stop()
	w.start(func(o *Options) { o.CSIDrivers = map[string]csispec.NodeServer{"imaginary.test": imaginaryDriver{}} })
	var got *storagev1.CSINode
	w.eventually(func() string {
		var err error
		if got, err = w.client.StorageV1().CSINodes().Get(t.Context(), nodeName, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if len(got.Spec.Drivers) == 0 {
			return "no driver in the CSINode"
		}
		return ""
	})
	d := got.Spec.Drivers[0]
	if d.Name != "imaginary.test" || d.NodeID != "here" || !slices.Equal(d.TopologyKeys, []string{"topology.test/host"}) || *d.Allocatable.Count != 3 {
		t.Errorf("the CSINode has %+v", d)
	}
	node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if node.Labels["topology.test/host"] != "here" || node.Annotations["csi.volume.kubernetes.io/nodeid"] != `{"imaginary.test":"here"}` {
		t.Errorf("the node has labels %v and annotations %v", node.Labels, node.Annotations)
	}
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != node.UID {
		t.Errorf("the CSINode is owned by %v", got.OwnerReferences)
	}
}

// The resources of device plugins are in the node's status.
func TestDeviceResources(t *testing.T) {
	w := newFixture(t)
	w.stop()
	dir := filepath.Join(w.dir, "kubelet", "device-plugins")
	if err := os.WriteFile(filepath.Join(dir, "kubelet_internal_checkpoint"), []byte(`{"Resources":["test/gpu"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.eventually(func() string {
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if amount, ok := node.Status.Capacity["test/gpu"]; !ok || !amount.IsZero() {
			return "the node does not say that the device plugin it had is gone"
		}
		return ""
	})
	gone := w.create("web", "{containers: [{name: a, image: nginx, resources: {limits: {test/gpu: 1}}}]}")
	w.eventually(func() string {
		pod, err := w.client.CoreV1().Pods("default").Get(t.Context(), gone.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		want := "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices test/gpu, which is unexpected"
		if pod.Status.Reason != "UnexpectedAdmissionError" || pod.Status.Message != want {
			return "the pod is not rejected: " + pod.Status.Reason + " " + pod.Status.Message
		}
		return ""
	})
}
