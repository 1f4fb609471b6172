package localvolume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/protection"
	"skiff/internal/localvolume"
)

// nodeVolumes are the volumes of a node: it has room for a number of bytes, and may lose answers.
type nodeVolumes struct {
	mu       sync.Mutex
	room     int64
	volumes  map[string]int64
	loseNext int // so many calls are carried out and their answers lost
}

func (n *nodeVolumes) carryOut(do func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	if n.loseNext > 0 {
		n.loseNext--
		return status.Error(codes.Unavailable, "the answer is lost")
	}
	return nil
}

func (n *nodeVolumes) CreateVolume(_ context.Context, rq *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	size := rq.CapacityRange.RequiredBytes
	err := n.carryOut(func() error {
		if size > n.room {
			return status.Error(codes.ResourceExhausted, "the disk is too full")
		}
		n.volumes[rq.Name] = size
		return nil
	})
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: rq.Name, CapacityBytes: size}}, err
}

func (n *nodeVolumes) ControllerExpandVolume(_ context.Context, rq *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	size := rq.CapacityRange.RequiredBytes
	err := n.carryOut(func() error {
		if size > n.room {
			return status.Error(codes.ResourceExhausted, "the disk is too full")
		}
		n.volumes[rq.VolumeId] = size
		return nil
	})
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, err
}

func (n *nodeVolumes) DeleteVolume(_ context.Context, rq *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, n.carryOut(func() error {
		delete(n.volumes, rq.VolumeId)
		return nil
	})
}

func (n *nodeVolumes) size(name string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.volumes[name]
}

func (n *nodeVolumes) names() (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.volumes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// cluster is an API server with the loop and two nodes.
type cluster struct {
	*testing.T
	api   kubernetes.Interface
	nodes map[string]*nodeVolumes
	stop  func()
	run   func() (stop func())
}

func start(t *testing.T) *cluster {
	server := apitest.Start(t)
	c := &cluster{T: t, api: server.Client(), nodes: map[string]*nodeVolumes{}}
	for _, name := range []string{"n1", "n2"} {
		c.nodes[name] = &nodeVolumes{room: 1 << 40, volumes: map[string]int64{}}
		if _, err := c.api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.run = func() func() {
		return controllertest.Run(t, server, func(deps controller.Deps) controller.Loop {
			l := newLoop(deps)
			l.volumesOf = func(_ *client.Client, node string) localvolume.Volumes { return c.nodes[node] }
			return l.declaration(deps)
		}, protection.NewVolumes)
	}
	c.stop = c.run()
	return c
}

// claim creates a claim that the binder has asked a volume for, on a node if that is not empty.
func (c *cluster) claim(name, size, node string) *corev1.PersistentVolumeClaim {
	c.Helper()
	class := className
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": "local.skiff"}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{storage: resource.MustParse(size)}}},
	}
	if node != "" {
		claim.Annotations["volume.kubernetes.io/selected-node"] = node
	}
	claim, err := c.api.CoreV1().PersistentVolumeClaims("default").Create(c.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return claim
}

// provisioned waits for the PersistentVolume of a claim.
func (c *cluster) provisioned(claim *corev1.PersistentVolumeClaim) (pv *corev1.PersistentVolume) {
	c.Helper()
	controllertest.Eventually(c.T, func() string {
		var err error
		if pv, err = c.api.CoreV1().PersistentVolumes().Get(c.Context(), "pvc-"+string(claim.UID), metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	return pv
}

func (c *cluster) event(reason, text string) {
	c.Helper()
	controllertest.Eventually(c.T, func() string {
		list, err := c.api.CoreV1().Events("default").List(c.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, e := range list.Items {
			if e.Reason == reason && e.Source.Component == "local.skiff" && strings.Contains(e.Message, text) {
				return ""
			}
		}
		return fmt.Sprintf("there is no event %s: %s", reason, text)
	})
}

// bind binds a claim to its volume, as the binder would.
func (c *cluster) bind(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	c.Helper()
	ctx, claims := c.Context(), c.api.CoreV1().PersistentVolumeClaims("default")
	patch := fmt.Sprintf(`{"spec":{"volumeName":%q}}`, pv.Name)
	if _, err := claims.Patch(ctx, claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
	size := pv.Spec.Capacity[storage]
	patch = fmt.Sprintf(`{"status":{"phase":"Bound","capacity":{"storage":%q}}}`, size.String())
	if _, err := claims.Patch(ctx, claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		c.Fatal(err)
	}
	c.phase(pv, corev1.VolumeBound)
}

func (c *cluster) phase(pv *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) {
	c.Helper()
	if _, err := c.api.CoreV1().PersistentVolumes().Patch(c.Context(), pv.Name, types.MergePatchType, []byte(fmt.Sprintf(`{"status":{"phase":%q}}`, phase)), metav1.PatchOptions{}, "status"); err != nil {
		c.Fatal(err)
	}
}

// A claim gets its volume, more space in it, and is rid of it in the end, by a loop that acts with its own rights.
func TestLife(t *testing.T) {
	c := start(t)
	controllertest.Eventually(t, func() string {
		class, err := c.api.StorageV1().StorageClasses().Get(t.Context(), "local", metav1.GetOptions{})
		if err != nil || class.Annotations[defaultAnnotation] != "true" || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
			return fmt.Sprint(class, err)
		}
		return ""
	})
	claim := c.claim("data", "1Gi", "n1")
	pv := c.provisioned(claim)
	c.event("ProvisioningSucceeded", "Successfully provisioned volume "+pv.Name)
	c.bind(claim, pv)
	if _, err := c.api.CoreV1().PersistentVolumeClaims("default").Patch(t.Context(), "data", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		claim, err := c.api.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
		if err != nil || claim.Status.AllocatedResourceStatuses[storage] != corev1.PersistentVolumeClaimNodeResizePending || len(claim.Status.Conditions) != 1 ||
			claim.Status.Conditions[0].Type != corev1.PersistentVolumeClaimFileSystemResizePending {
			return fmt.Sprint(claim.Status, err)
		}
		return ""
	})
	pv = c.provisioned(claim)
	if size := pv.Spec.Capacity[storage]; size.String() != "3Gi" || c.nodes["n1"].size(pv.Name) != 3<<30 {
		t.Errorf("the volume has %s, and on the node %d bytes", &size, c.nodes["n1"].size(pv.Name))
	}
	c.phase(pv, corev1.VolumeReleased)
	controllertest.Eventually(t, func() string {
		if _, err := c.api.CoreV1().PersistentVolumes().Get(t.Context(), pv.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint("the PersistentVolume is there: ", err)
		}
		return ""
	})
	if left := c.nodes["n1"].names(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A node without room is given up for another, and one whose answer was lost is asked again: a claim has one volume.
func TestOneVolume(t *testing.T) {
	c := start(t)
	c.nodes["n1"].room, c.nodes["n2"].loseNext = 1<<20, 3
	claim := c.claim("data", "1Gi", "n1")
	controllertest.Eventually(t, func() string {
		claim, err := c.api.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
		if err != nil || claim.Annotations["volume.kubernetes.io/selected-node"] != "" {
			return fmt.Sprint("it is still to be on n1: ", err)
		}
		return ""
	})
	c.event("ProvisioningFailed", `failed to provision volume with StorageClass "local": rpc error: code = ResourceExhausted desc = the disk is too full`)
	patch := []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"n2"}}}`)
	if _, err := c.api.CoreV1().PersistentVolumeClaims("default").Patch(t.Context(), "data", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stop() // at any point
	c.run()
	pv := c.provisioned(claim)
	if first, second := c.nodes["n1"].names(), c.nodes["n2"].names(); len(first) != 0 || !slices.Equal(second, []string{pv.Name}) || pv.Spec.CSI.VolumeAttributes["node"] != "n2" {
		t.Errorf("volumes %v and %v, of which that of %v counts", first, second, pv.Spec.CSI.VolumeAttributes)
	}
}

// An expansion that there is no space for is noted, and another is tried when the claim asks for less.
func TestInfeasible(t *testing.T) {
	c := start(t)
	claim := c.claim("data", "1Gi", "n1")
	c.bind(claim, c.provisioned(claim))
	claims := c.api.CoreV1().PersistentVolumeClaims("default")
	ask := func(size string, want corev1.ClaimResourceStatus) {
		t.Helper()
		if _, err := claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"`+size+`"}}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string {
			claim, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
			if err != nil || claim.Status.AllocatedResourceStatuses[storage] != want {
				return fmt.Sprint(claim.Status, err)
			}
			return ""
		})
	}
	ask("2Ti", corev1.PersistentVolumeClaimControllerResizeInfeasible)
	c.event("VolumeResizeFailed", "the disk is too full")
	ask("2Gi", corev1.PersistentVolumeClaimNodeResizePending)
}
