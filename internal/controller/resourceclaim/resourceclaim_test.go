package resourceclaim_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/resourceclaim"
)

// A pod's claim from its creation to the end of the pod, with the scheduler's part done by the test.
func TestLifeOfClaim(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, resourceclaim.New)
	c := server.Client()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	ok(err)
	template := "gpu"
	pod, err := c.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "c", Image: "nginx", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}}}, metav1.CreateOptions{})
	ok(err)
	// The template may come after the pod.
	_, err = c.ResourceV1().ResourceClaimTemplates("default").Create(t.Context(), &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: template},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}}}}}}, metav1.CreateOptions{})
	ok(err)
	claims, name := c.ResourceV1().ResourceClaims("default"), ""
	controllertest.Eventually(t, func() string {
		pod, err = c.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		ok(err)
		if len(pod.Status.ResourceClaimStatuses) != 1 {
			return "the name of the claim in the pod's status"
		}
		name = *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
		return ""
	})
	claim, err := claims.Get(t.Context(), name, metav1.GetOptions{})
	ok(err)
	if !metav1.IsControlledBy(claim, pod) || claim.Annotations[resourcev1.PodResourceClaimAnnotation] != "gpu" {
		t.Errorf("claim %+v", claim.ObjectMeta)
	}
	// A claim that is deleted is created again.
	ok(claims.Delete(t.Context(), name, metav1.DeleteOptions{}))
	controllertest.Eventually(t, func() string {
		again, err := claims.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || again.UID == claim.UID {
			return "another claim"
		}
		claim = again
		return ""
	})
	// As the scheduler would: a finalizer, an allocation with a reservation, a binding.
	claim.Finalizers = []string{resourcev1.Finalizer}
	claim, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{})
	ok(err)
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d.example.com", Pool: "p", Device: "g0"}}}}
	claim, err = claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	ok(err)
	controllertest.Bind(t, server, pod, "n1")
	controllertest.Eventually(t, func() string {
		claim, err = claims.Get(t.Context(), name, metav1.GetOptions{})
		ok(err)
		if len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].UID != pod.UID {
			return fmt.Sprintf("a reservation for the pod in %+v", claim.Status)
		}
		return ""
	})
	pod, err = c.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
	ok(err)
	controllertest.ReportPhase(t, server, pod, corev1.PodSucceeded, "")
	controllertest.Eventually(t, func() string {
		if _, err := claims.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint("the end of the claim: ", err)
		}
		return ""
	})
}

// A claim that several pods share stays allocated until the last of them is gone.
func TestSharedClaim(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, resourceclaim.New)
	c := server.Client()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	claims := c.ResourceV1().ResourceClaims("default")
	claim, err := claims.Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "shared", Finalizers: []string{resourcev1.Finalizer}},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}}}}}, metav1.CreateOptions{})
	ok(err)
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d.example.com", Pool: "p", Device: "g0"}}}}
	for _, name := range []string{"a", "b"} {
		pod, err := c.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "nginx"}}, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim.Name}}}}, metav1.CreateOptions{})
		ok(err)
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: pod.UID})
	}
	_, err = claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	ok(err)
	none := int64(0)
	for i, name := range []string{"a", "b"} {
		ok(c.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none}))
		controllertest.Eventually(t, func() string {
			claim, err = claims.Get(t.Context(), "shared", metav1.GetOptions{})
			ok(err)
			if left := 1 - i; len(claim.Status.ReservedFor) != left || (claim.Status.Allocation != nil) != (left > 0) || len(claim.Finalizers) != left {
				return fmt.Sprintf("%d reservations, not %+v %v", left, claim.Status, claim.Finalizers)
			}
			return ""
		})
	}
}
