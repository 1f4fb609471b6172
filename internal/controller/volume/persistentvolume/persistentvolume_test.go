package persistentvolume_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcore "k8s.io/client-go/kubernetes/typed/core/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/protection"
	"skiff/internal/controller/volume/persistentvolume"
)

// cluster is a server with the loop, and those that protect claims and volumes.
type cluster struct {
	testing.TB
	*apitest.Server
}

func start(t testing.TB) cluster {
	c := cluster{t, apitest.Start(t)}
	controllertest.Run(t, c.Server, persistentvolume.New, protection.NewClaims, protection.NewVolumes)
	return c
}

func (c cluster) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c cluster) claims() clientcore.PersistentVolumeClaimInterface {
	return c.Client().CoreV1().PersistentVolumeClaims("default")
}

func (c cluster) volumes() clientcore.PersistentVolumeInterface {
	return c.Client().CoreV1().PersistentVolumes()
}

func newClaim(name, size string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}}}
	for _, f := range change {
		f(claim)
	}
	return claim
}

func newVolume(name, size string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: name}}}}
	for _, f := range change {
		f(volume)
	}
	return volume
}

func (c cluster) claim(name, size string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c.Helper()
	claim, err := c.claims().Create(c.Context(), newClaim(name, size, change...), metav1.CreateOptions{})
	c.ok(err)
	return claim
}

func (c cluster) volume(name, size string, change ...func(*corev1.PersistentVolume)) {
	c.Helper()
	_, err := c.volumes().Create(c.Context(), newVolume(name, size, change...), metav1.CreateOptions{})
	c.ok(err)
}

func (c cluster) class(name, provisioner string, change ...func(*storagev1.StorageClass)) {
	c.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	for _, f := range change {
		f(class)
	}
	_, err := c.Client().StorageV1().StorageClasses().Create(c.Context(), class, metav1.CreateOptions{})
	c.ok(err)
}

// claimIs waits until a claim is as wanted: its phase, its volume and its size.
func (c cluster) claimIs(name, want string) *corev1.PersistentVolumeClaim {
	c.Helper()
	var claim *corev1.PersistentVolumeClaim
	controllertest.Eventually(c, func() string {
		var err error
		claim, err = c.claims().Get(c.Context(), name, metav1.GetOptions{})
		c.ok(err)
		got := string(claim.Status.Phase)
		if claim.Status.Phase == corev1.ClaimBound {
			size := claim.Status.Capacity[corev1.ResourceStorage]
			got += " to " + claim.Spec.VolumeName + " of " + size.String()
		}
		if got != want {
			return fmt.Sprintf("claim %s is %s, not %s", name, got, want)
		}
		return ""
	})
	return claim
}

// volumeIs waits until a volume is as wanted: its phase, and its claim.
func (c cluster) volumeIs(name, want string) *corev1.PersistentVolume {
	c.Helper()
	var volume *corev1.PersistentVolume
	controllertest.Eventually(c, func() string {
		var err error
		volume, err = c.volumes().Get(c.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && want == "gone" {
			return ""
		}
		c.ok(err)
		got := string(volume.Status.Phase)
		if ref := volume.Spec.ClaimRef; ref != nil {
			got += " of " + ref.Name
		}
		if got != want {
			return fmt.Sprintf("volume %s is %s, not %s", name, got, want)
		}
		return ""
	})
	return volume
}

// event waits for an Event about an object.
func (c cluster) event(namespace, name, want string) {
	c.Helper()
	controllertest.Eventually(c, func() string {
		list, err := c.Client().CoreV1().Events(namespace).List(c.Context(), metav1.ListOptions{})
		c.ok(err)
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name == name && e.Source.Component == "persistentvolume-controller" {
				all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
				if all[len(all)-1] == want {
					return ""
				}
			}
		}
		return fmt.Sprintf("the event %s in\n%s", want, strings.Join(all, "\n"))
	})
}

// A claim and a volume from their creation to the end, each before the other.
func TestStatic(t *testing.T) {
	c := start(t)
	c.claim("first", "1Gi")
	c.event("default", "first", "Normal FailedBinding: no persistent volumes available for this claim and no storage class is set")
	c.volume("a", "2Gi", func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	})
	claim := c.claimIs("first", "Bound to a of 2Gi")
	if claim.Annotations["pv.kubernetes.io/bind-completed"] != "yes" || claim.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes" {
		t.Errorf("the claim's annotations are %v", claim.Annotations)
	}
	volume := c.volumeIs("a", "Bound of first")
	if ref := volume.Spec.ClaimRef; ref.UID != claim.UID || ref.Kind != "PersistentVolumeClaim" || ref.APIVersion != "v1" || volume.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes" {
		t.Errorf("the volume's claimRef is %+v, and its annotations %v", volume.Spec.ClaimRef, volume.Annotations)
	}

	c.volume("b", "1Gi")
	c.volumeIs("b", "Available")
	c.claim("second", "1Gi")
	c.claimIs("second", "Bound to b of 1Gi")

	// A retained volume is Released, and can be taken again when its claimRef is removed.
	c.ok(c.claims().Delete(t.Context(), "first", metav1.DeleteOptions{}))
	c.volumeIs("a", "Released of first")
	c.claim("third", "1Gi")
	_, err := c.volumes().Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"claimRef":null}}`), metav1.PatchOptions{})
	c.ok(err)
	c.claimIs("third", "Bound to a of 2Gi")

	// A claim whose volume is gone is Lost.
	_, err = c.volumes().Patch(t.Context(), "b", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	c.ok(err)
	c.ok(c.volumes().Delete(t.Context(), "b", metav1.DeleteOptions{}))
	_, err = c.volumes().Patch(t.Context(), "b", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	c.claimIs("second", "Lost")
	c.event("default", "second", "Warning ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!")
}

// Claims and volumes that their creators meant for each other.
func TestReserved(t *testing.T) {
	c := start(t)
	c.volume("small", "1Gi")
	c.volume("large", "9Gi", func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "mine"}
	})
	c.volumeIs("small", "Available")
	c.volumeIs("large", "Available of mine")
	c.claim("mine", "1Gi")
	c.claimIs("mine", "Bound to large of 9Gi")

	c.claim("wants", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "wanted" })
	c.claimIs("wants", "Pending")
	c.volume("wanted", "1Gi")
	c.claimIs("wants", "Bound to wanted of 1Gi")

	c.claim("late", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "wanted" })
	c.event("default", "late", `Warning FailedBinding: volume "wanted" already bound to a different claim.`)
	c.claim("bigger", "5Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "small" })
	c.event("default", "bigger", `Warning VolumeMismatch: Cannot bind to requested volume "small": requested PV is too small`)
	c.volumeIs("small", "Available")

	c.claim("device", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) })
	c.volume("block", "1Gi", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) })
	c.claimIs("device", "Bound to block of 1Gi")
}

// Volumes that a provisioner makes and deletes.
func TestProvisioned(t *testing.T) {
	c := start(t)
	claim := c.claim("early", "1Gi")
	c.event("default", "early", "Normal FailedBinding: no persistent volumes available for this claim and no storage class is set")
	c.class("fast", "example.com/disk", func(s *storagev1.StorageClass) {
		s.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	})
	c.event("default", "early", "Normal ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'example.com/disk' or manually by the system administrator. "+
		"If volume creation is delayed, please verify that the provisioner is running and correctly registered.")
	claim, err := c.claims().Get(t.Context(), claim.Name, metav1.GetOptions{})
	c.ok(err)
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != "fast" || claim.Annotations["volume.kubernetes.io/storage-provisioner"] != "example.com/disk" ||
		claim.Annotations["volume.beta.kubernetes.io/storage-provisioner"] != "example.com/disk" {
		t.Errorf("the claim has the annotations %v", claim.Annotations)
	}
	provision := func(claim *corev1.PersistentVolumeClaim) string {
		name := "pvc-" + string(claim.UID)
		c.volume(name, "3Gi", func(v *corev1.PersistentVolume) {
			v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "example.com/disk"}
			v.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer"}
			v.Spec.StorageClassName, v.Spec.PersistentVolumeReclaimPolicy = *claim.Spec.StorageClassName, corev1.PersistentVolumeReclaimDelete
			v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: claim.Name, UID: claim.UID}
		})
		return name
	}
	name := provision(claim)
	c.claimIs("early", "Bound to "+name+" of 3Gi")
	c.ok(c.claims().Delete(t.Context(), "early", metav1.DeleteOptions{}))
	c.volumeIs(name, "Released of early")
	c.ok(c.volumes().Delete(t.Context(), name, metav1.DeleteOptions{}))
	_, err = c.volumes().Patch(t.Context(), name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
	c.ok(err)
	c.volumeIs(name, "gone")

	// A class that is created later, and waits for consumers.
	claim = c.claim("later", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("later") })
	c.event("default", "later", `Warning ProvisioningFailed: storageclass.storage.k8s.io "later" not found`)
	c.class("later", "example.com/disk", func(s *storagev1.StorageClass) {
		s.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	})
	c.event("default", "later", "Normal WaitForFirstConsumer: waiting for first consumer to be created before binding")
	_, err = c.claims().Patch(t.Context(), "later", types.MergePatchType, []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-1"}}}`), metav1.PatchOptions{})
	c.ok(err)
	controllertest.Eventually(t, func() string {
		claim, err = c.claims().Get(t.Context(), "later", metav1.GetOptions{})
		c.ok(err)
		if claim.Annotations["volume.kubernetes.io/storage-provisioner"] == "" {
			return "its provisioner is not told"
		}
		return ""
	})
	name = provision(claim)
	c.claimIs("later", "Bound to "+name+" of 3Gi")
}

// Claims and volumes that come at the same time find each other at once, and not when the waiting claims are next looked through.
func TestManyAtOnce(t *testing.T) {
	c := start(t)
	const n, writers = 1000, 16
	for i := range n {
		c.claim(fmt.Sprint("claim-", i), "1Gi")
	}
	began := time.Now()
	var made sync.WaitGroup
	for w := range writers {
		made.Go(func() {
			for i := w; i < n; i += writers {
				if _, err := c.volumes().Create(t.Context(), newVolume(fmt.Sprint("volume-", i), "1Gi"), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	made.Wait()
	for {
		claims, err := c.claims().List(c.Context(), metav1.ListOptions{})
		c.ok(err)
		bound := 0
		for _, claim := range claims.Items {
			if claim.Status.Phase == corev1.ClaimBound {
				bound++
			}
		}
		if bound == n {
			break
		}
		if time.Since(began) > 8*time.Second {
			t.Fatalf("%d of %d claims are bound after %v", bound, n, time.Since(began))
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("%d claims were bound in %v", n, time.Since(began))
}
