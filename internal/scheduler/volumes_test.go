package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/storage/volume"

	"skiff/internal/scheduler"
)

var background = context.Background()

// class creates a StorageClass whose claims wait for their first consumer.
func (c cluster) class(name, provisioner string) {
	c.t.Helper()
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	if _, err := c.Client().StorageV1().StorageClasses().Create(background, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name},
		Provisioner: provisioner, VolumeBindingMode: &wait}, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c cluster) claim(name, class string, change ...func(*corev1.PersistentVolumeClaim)) {
	c.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}}
	for _, f := range change {
		f(claim)
	}
	if _, err := c.Client().CoreV1().PersistentVolumeClaims("default").Create(background, claim, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// localVolume creates an available volume that only one node reaches.
func (c cluster) localVolume(name, class, node string) {
	c.t.Helper()
	api := c.Client().CoreV1().PersistentVolumes()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{StorageClassName: class,
		Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/disk"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}}}
	made, err := api.Create(background, v, metav1.CreateOptions{})
	if err == nil {
		made.Status.Phase = corev1.VolumeAvailable
		_, err = api.UpdateStatus(background, made, metav1.UpdateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// changeClaim changes a claim as a controller does.
func (c cluster) changeClaim(name string, change func(*corev1.PersistentVolumeClaim)) {
	c.t.Helper()
	api := c.Client().CoreV1().PersistentVolumeClaims("default")
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := api.Get(background, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		change(claim)
		_, err = api.Update(background, claim, metav1.UpdateOptions{})
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
}

// bind binds a claim to a volume, as the PersistentVolume controller does.
func (c cluster) bind(claim, volumeName string) {
	c.t.Helper()
	c.changeClaim(claim, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.VolumeName = volumeName
		claim.Annotations[volume.AnnBindCompleted] = "yes"
	})
}

// selected waits until volumes are to be provisioned for a claim and returns the node.
func (c cluster) selected(claim string) (node string) {
	c.t.Helper()
	eventually(c.t, "a node is selected for "+claim, func() bool {
		got, err := c.Client().CoreV1().PersistentVolumeClaims("default").Get(background, claim, metav1.GetOptions{})
		node = got.Annotations[volume.AnnSelectedNode]
		return err == nil && node != ""
	})
	return node
}

// claimOf waits until a volume refers to a claim and returns its name.
func (c cluster) claimOf(volumeName string) (claim string) {
	c.t.Helper()
	eventually(c.t, volumeName+" refers to a claim", func() bool {
		v, err := c.Client().CoreV1().PersistentVolumes().Get(background, volumeName, metav1.GetOptions{})
		if err != nil || v.Spec.ClaimRef == nil {
			return false
		}
		claim = v.Spec.ClaimRef.Name
		return true
	})
	return claim
}

func withClaims(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i, name := range names {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
	}
}

// A pod whose claim waits for it gets a volume that exists: the scheduler writes which claim the volume is for, the pod says which node it is expected on,
// and it is bound when the claim is.
func TestBindsVolumes(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.node(node("n2", "4"))
	c.class("local", "kubernetes.io/no-provisioner")
	c.claim("data", "local")
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("web", "100m", withClaims("data")))
	c.refused("web", "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. preemption: 0/2 nodes are available: "+
		"2 Preemption is not helpful for scheduling.")
	c.localVolume("disk", "local", "n2")
	if claim := c.claimOf("disk"); claim != "data" {
		t.Fatalf("the volume refers to %s", claim)
	}
	eventually(t, "the pod says where it is expected", func() bool { return c.get("web").Status.NominatedNodeName == "n2" })
	if node := c.get("web").Spec.NodeName; node != "" {
		t.Fatalf("the pod is bound to %s before its claim", node)
	}
	c.bind("data", "disk")
	if node := c.bound("web"); node != "n2" {
		t.Errorf("the pod is on %s", node)
	}
	if p := c.get("web"); p.Status.NominatedNodeName != "" {
		t.Errorf("the pod is still nominated for %s", p.Status.NominatedNodeName)
	}
}

// Claims that do not wait for pods keep them back until they are bound, and then on the nodes that reach the volume.
func TestWaitsForImmediateClaims(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.node(node("n2", "4"))
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("web", "100m", withClaims("data")))
	c.refused("web", `0/2 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/2 nodes are available: `+
		"2 Preemption is not helpful for scheduling.")
	c.claim("data", "")
	c.refused("web", "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/2 nodes are available: "+
		"2 Preemption is not helpful for scheduling.")
	c.localVolume("disk", "", "n1")
	c.bind("data", "disk")
	if node := c.bound("web"); node != "n1" {
		t.Errorf("the pod is on %s", node)
	}
}

// Of two pods that need the only volume, one gets it: the other sees that it is reserved before the API knows.
func TestReservesVolumes(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.class("local", "kubernetes.io/no-provisioner")
	c.localVolume("disk", "local", "n1")
	for i := range 5 {
		c.claim(fmt.Sprint("data", i), "local")
		c.pod(pod(fmt.Sprint("web", i), "100m", withClaims(fmt.Sprint("data", i))))
	}
	start(t, c.Server, scheduler.Config{})
	first := strings.TrimPrefix(c.claimOf("disk"), "data")
	for i := range 5 {
		if fmt.Sprint(i) != first {
			c.refused(fmt.Sprint("web", i), "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind. "+
				"preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")
		}
	}
	c.bind("data"+first, "disk")
	c.bound("web" + first)
}

// A provisioner that cannot provision the volume removes the annotation: the pod is tried again, here on the other node.
func TestProvisioningFails(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.node(node("n2", "4"))
	c.class("disks", "disks.example")
	c.claim("data", "disks")
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("web", "100m", withClaims("data")))
	first := c.selected("data")
	c.patchNode(first, `{"spec":{"unschedulable":true}}`)
	c.sees(2)
	c.changeClaim("data", func(claim *corev1.PersistentVolumeClaim) { delete(claim.Annotations, volume.AnnSelectedNode) })
	c.event("web", `Warning FailedScheduling Scheduling default-scheduler running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data"`)
	second := c.selected("data")
	if second == first {
		t.Errorf("the volume is to be provisioned on %s again", first)
	}
	c.localVolume("disk", "disks", second)
	c.bind("data", "disk")
	if node := c.bound("web"); node != second {
		t.Errorf("the pod is on %s, not %s", node, second)
	}
}

// More pods wait for volumes than are bound at a time; others are scheduled meanwhile. A pod that is deleted no longer waits, nor does one that has waited
// for too long.
func TestWaitingForVolumesKeepsNobodyBack(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "100"))
	c.class("disks", "disks.example")
	const pods = 80
	for i := range pods {
		c.claim(fmt.Sprint("data", i), "disks")
		c.pod(pod(fmt.Sprint("web", i), "100m", withClaims(fmt.Sprint("data", i))))
	}
	_, stop := start(t, c.Server, scheduler.Config{})
	for i := range pods {
		c.selected(fmt.Sprint("data", i))
	}
	c.pod(pod("other", "91"))
	c.bound("other")
	c.pod(pod("more", "2"))
	c.refused("more", "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")
	for i := range 20 { // whatever the pods that wait have reserved is free when they are deleted
		c.end(fmt.Sprint("web", i))
	}
	c.bound("more")
	stop() // while pods wait
	start(t, c.Server, load(t, `profiles: [{pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 1}}]}]`))
	c.event("web50", `Warning FailedScheduling Scheduling default-scheduler running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded`)
}

// A pod of higher priority preempts the one that uses its claim, if only one may.
func TestPreemptsForReadWriteOncePod(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.localVolume("disk", "", "n1")
	c.claim("data", "", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	c.bind("data", "disk")
	if _, err := c.Client().SchedulingV1().PriorityClasses().Create(background, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("first", "100m", withClaims("data")))
	c.bound("first")
	c.pod(pod("second", "100m", withClaims("data")))
	c.refused("second", "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod. "+
		"preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")
	c.pod(pod("urgent", "100m", withClaims("data"), func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }))
	eventually(t, "the first pod is preempted", func() bool { return c.get("first").DeletionTimestamp != nil })
	c.end("first")
	c.bound("urgent")
}
