//go:build linux

package csi

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// grow is what a resizer does to a claim whose volume it has expanded.
func (n *node) grow(name, size string) {
	n.objects.mu.Lock()
	defer n.objects.mu.Unlock()
	to := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	n.objects.volumes["pv-"+name] = n.objects.volumes["pv-"+name].DeepCopy()
	n.objects.volumes["pv-"+name].Spec.Capacity = to
	claim := n.objects.claims[name].DeepCopy()
	claim.Status.AllocatedResources = to
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
	n.objects.claims[name] = claim
}

// A volume that has grown is expanded where it is published, and before it is published in a pod that comes later; the claim says so.
func TestExpand(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	pod := n.pod("a", "data")
	n.setUp(pod)
	n.driver.called()
	n.grow("data", "2Gi")
	n.setUp(pod)
	n.called("expand h-data 2147483648 mount")
	s := &n.objects.claims["data"].Status
	if s.Capacity.Storage().String() != "2Gi" || len(s.Conditions) != 0 || len(s.AllocatedResourceStatuses) != 0 {
		t.Errorf("the claim's status is %+v", s)
	}
	if want := "Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume \"pv-data\" n1"; len(n.events) != 2 || n.events[0] != want {
		t.Errorf("events: %q", n.events)
	}
	n.setUp(pod)
	n.called("")
	n.tearDown("a")
	n.driver.called()
	n.grow("data", "3Gi")
	n.setUp(pod)
	n.called("stage h-data, expand h-data 3221225472 globalmount, publish h-data")
}

// What the driver refuses is in the claim's conditions, and does not disturb a pod that runs.
func TestExpandFails(t *testing.T) {
	n := newNode(t)
	n.claim("data")
	pod := n.pod("a", "data")
	n.setUp(pod)
	n.grow("data", "2Gi")
	n.driver.failing("expand", status.Error(codes.OutOfRange, "too large"))
	n.setUp(pod)
	s := &n.objects.claims["data"].Status
	if s.AllocatedResourceStatuses[corev1.ResourceStorage] != corev1.PersistentVolumeClaimNodeResizeInfeasible || len(s.Conditions) != 2 ||
		s.Conditions[1].Message != "failed to expand pvc with rpc error: code = OutOfRange desc = too large" {
		t.Errorf("the claim's status is %+v", s)
	}
	if len(n.events) == 0 || !strings.HasPrefix(n.events[0], "Warning VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume \"pv-data\"") {
		t.Errorf("events: %q", n.events)
	}
	n.driver.called()
	n.setUp(pod)
	n.called("")
}

// A volume on several nodes grows on each of them, though the claim has its new size after the first.
func TestExpandOnSeveralNodes(t *testing.T) {
	n := newNode(t)
	n.claim("data", func(pv *corev1.PersistentVolume) {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	pod := n.pod("a", "data")
	n.setUp(pod)
	n.driver.called()
	n.grow("data", "2Gi")
	expanded(&n.objects.claims["data"].Status, resource.MustParse("2Gi"))
	n.setUp(pod)
	n.called("expand h-data 2147483648 mount")
	n.setUp(pod)
	n.called("")
}
