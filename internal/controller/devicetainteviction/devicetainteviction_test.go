package devicetainteviction_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/devicetainteviction"
)

type cluster struct {
	*testing.T
	*apitest.Server
}

func (c cluster) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func start(t *testing.T) cluster {
	c := cluster{t, apitest.Start(t)}
	controllertest.Run(t, c.Server, devicetainteviction.New)
	_, err := c.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	c.ok(err)
	return c
}

// slice creates a slice with devices g0 and g1.
func (c cluster) slice() *resourcev1.ResourceSlice {
	c.Helper()
	node := "n1"
	s, err := c.Client().ResourceV1().ResourceSlices().Create(c.T.Context(), &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "g0"}, {Name: "g1"}}}}, metav1.CreateOptions{})
	c.ok(err)
	return s
}

// pod creates a bound pod with an allocated claim for a device.
func (c cluster) pod(name, device string) {
	c.Helper()
	claims := c.Client().ResourceV1().ResourceClaims("default")
	claim, err := claims.Create(c.T.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}}}}}, metav1.CreateOptions{})
	c.ok(err)
	pod, err := c.Client().CoreV1().Pods("default").Create(c.T.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "nginx"}}, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}}}, metav1.CreateOptions{})
	c.ok(err)
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d.example.com", Pool: "p", Device: device}}}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
	_, err = claims.UpdateStatus(c.T.Context(), claim, metav1.UpdateOptions{})
	c.ok(err)
	controllertest.Bind(c, c.Server, pod, "n1")
}

// ending waits until a pod is being deleted with the DisruptionTarget condition, and ends it as its kubelet would.
func (c cluster) ending(name string) {
	c.Helper()
	pods := c.Client().CoreV1().Pods("default")
	controllertest.Eventually(c, func() string {
		pod, err := pods.Get(c.T.Context(), name, metav1.GetOptions{})
		c.ok(err)
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.DisruptionTarget && condition.Reason == "DeletionByDeviceTaintManager" && pod.DeletionTimestamp != nil {
				return ""
			}
		}
		return fmt.Sprintf("the end of the pod in %+v", pod.Status.Conditions)
	})
	none := int64(0)
	c.ok(pods.Delete(c.T.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none}))
	controllertest.Eventually(c, func() string {
		if _, err := pods.Get(c.T.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "the pod to be gone"
		}
		return ""
	})
}

func (c cluster) stays(name string) {
	c.Helper()
	pod, err := c.Client().CoreV1().Pods("default").Get(c.T.Context(), name, metav1.GetOptions{})
	c.ok(err)
	if pod.DeletionTimestamp != nil {
		c.Errorf("pod %s is being deleted", name)
	}
}

// A driver that taints a device has its pod evicted, and no other.
func TestSlice(t *testing.T) {
	c := start(t)
	s := c.slice()
	c.pod("a", "g0")
	c.pod("b", "g1")
	s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "sick", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	s.Spec.Pool.Generation++
	_, err := c.Client().ResourceV1().ResourceSlices().Update(t.Context(), s, metav1.UpdateOptions{})
	c.ok(err)
	c.ending("a")
	c.stays("b")
}

// A rule has pods evicted, and tells how many.
func TestRule(t *testing.T) {
	c := start(t)
	c.slice()
	c.pod("a", "g0")
	c.pod("b", "g1")
	driver, device := "d.example.com", "g0"
	rules := c.Client().ResourceV1().DeviceTaintRules()
	rule, err := rules.Create(t.Context(), &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &driver, Device: &device}, Taint: resourcev1.DeviceTaint{Key: "sick", Effect: resourcev1.DeviceTaintEffectNone}}}, metav1.CreateOptions{})
	c.ok(err)
	told := func(reason, message string) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			rule, err = rules.Get(t.Context(), "rule", metav1.GetOptions{})
			c.ok(err)
			condition := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
			if condition == nil || condition.Reason != reason || condition.Message != message {
				return fmt.Sprintf("reason %s: %s, not %+v", reason, message, condition)
			}
			return ""
		})
	}
	told("NoEffect",
		"1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.")
	rule.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	_, err = rules.Update(t.Context(), rule, metav1.UpdateOptions{})
	c.ok(err)
	c.ending("a")
	told("Completed", "1 pod evicted since starting the controller.")
	c.stays("b")
}
