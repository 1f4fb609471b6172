package ephemeral_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/volume/ephemeral"
)

// A claim that is in the way holds a pod up until it is deleted, and one that was created for a pod is created again.
func TestClaims(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, ephemeral.New)
	c := server.Client().CoreV1()
	claims := c.PersistentVolumeClaims("default")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	spec := corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}
	_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "web-data"}, Spec: spec}, metav1.CreateOptions{})
	ok(err)
	pod, err := c.Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: spec}}}}}}}, metav1.CreateOptions{})
	ok(err)
	controllertest.Eventually(t, func() string {
		events, err := c.Events("default").List(t.Context(), metav1.ListOptions{})
		ok(err)
		for _, e := range events.Items {
			if e.Reason == "FailedBinding" && e.Source.Component == "ephemeral_volume" && strings.Contains(e.Message, "ephemeral volume data: PVC default/web-data was not created for pod default/web (pod is not owner)") {
				return ""
			}
		}
		return "an event that the claim is in the way"
	})
	for range 2 {
		// Claims are protected by a finalizer where its loop runs, which it does not here.
		ok(claims.Delete(t.Context(), "web-data", metav1.DeleteOptions{}))
		removeFinalizers(t, server)
		controllertest.Eventually(t, func() string {
			claim, err := claims.Get(t.Context(), "web-data", metav1.GetOptions{})
			if err != nil || !metav1.IsControlledBy(claim, pod) {
				return "a claim of the pod's"
			}
			return ""
		})
	}
}

func removeFinalizers(t *testing.T, server *apitest.Server) {
	claims := server.Client().CoreV1().PersistentVolumeClaims("default")
	claim, err := claims.Get(t.Context(), "web-data", metav1.GetOptions{})
	if err != nil || claim.DeletionTimestamp == nil {
		return
	}
	claim.Finalizers = nil
	if _, err := claims.Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
