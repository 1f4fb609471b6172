package expand_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/volume/expand"
	"skiff/internal/controller/volume/persistentvolume"
)

// A claim asks for more when it is bound and its class allows that, and is told who does it.
func TestExpand(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, expand.New, persistentvolume.New)
	core, classes := server.Client().CoreV1(), server.Client().StorageV1().StorageClasses()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	once, gibibyte := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for name, allow := range map[string]bool{"grows": true, "stays": false} {
		_, err := classes.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com", AllowVolumeExpansion: &allow}, metav1.CreateOptions{})
		ok(err)
		_, err = core.PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &name, AccessModes: once, Resources: corev1.VolumeResourceRequirements{Requests: gibibyte}}}, metav1.CreateOptions{})
		ok(err)
	}
	ask := func(name string) error {
		_, err := core.PersistentVolumeClaims("default").Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`), metav1.PatchOptions{})
		return err
	}
	for _, name := range []string{"grows", "stays"} {
		_, err := core.PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{StorageClassName: name,
			AccessModes: once, Capacity: gibibyte, PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: name}}}}, metav1.CreateOptions{})
		ok(err)
		controllertest.Eventually(t, func() string {
			claim, err := core.PersistentVolumeClaims("default").Get(t.Context(), name, metav1.GetOptions{})
			ok(err)
			if claim.Status.Phase != corev1.ClaimBound {
				return name + " bound"
			}
			return ""
		})
	}
	ok(ask("grows"))
	if err := ask("stays"); err == nil || err.Error() != `persistentvolumeclaims "stays" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize` {
		t.Errorf("a class that does not allow it: %v", err)
	}
	controllertest.Eventually(t, func() string {
		events, err := core.Events("default").List(t.Context(), metav1.ListOptions{})
		ok(err)
		for _, e := range events.Items {
			if e.InvolvedObject.Name == "grows" && e.Source.Component == "volume_expand" {
				if got := fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message); got != "Normal ExternalExpanding: waiting for an external controller to expand this PVC" {
					t.Errorf("it is told %q", got)
				}
				return ""
			}
		}
		return "an Event of volume_expand"
	})
}
