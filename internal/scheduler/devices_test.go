package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"skiff/internal/scheduler"
)

// deviceClass creates a class of the devices that an expression selects.
func (c cluster) deviceClass(name, expression string, change ...func(*resourcev1.DeviceClass)) {
	c.t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if expression != "" {
		class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	}
	for _, f := range change {
		f(class)
	}
	if _, err := c.Client().ResourceV1().DeviceClasses().Create(background, class, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// deviceSlice creates the devices of a node. Of each, the attribute "model" is the part of its name before the dash.
func (c cluster) deviceSlice(node string, names []string, change ...func(*resourcev1.Device)) {
	c.t.Helper()
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-slice"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}}
	for _, name := range names {
		model, _, _ := strings.Cut(name, "-")
		d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}}
		for _, f := range change {
			f(&d)
		}
		slice.Spec.Devices = append(slice.Spec.Devices, d)
	}
	if _, err := c.Client().ResourceV1().ResourceSlices().Create(background, slice, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func exactly(class string, tolerations ...resourcev1.DeviceToleration) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Tolerations: tolerations}}
}

func (c cluster) resourceClaim(name string, requests ...resourcev1.DeviceRequest) {
	c.t.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}}
	if _, err := c.Client().ResourceV1().ResourceClaims("default").Create(background, claim, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c cluster) getResourceClaim(name string) *resourcev1.ResourceClaim {
	c.t.Helper()
	claim, err := c.Client().ResourceV1().ResourceClaims("default").Get(background, name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return claim
}

// allocated returns the devices of a claim and the pods that it is reserved for.
func (c cluster) allocated(name string) string {
	c.t.Helper()
	claim := c.getResourceClaim(name)
	var out []string
	if a := claim.Status.Allocation; a != nil {
		for _, d := range a.Devices.Results {
			out = append(out, d.Pool+"/"+d.Device)
		}
	}
	out = append(out, "for")
	for _, r := range claim.Status.ReservedFor {
		out = append(out, r.Name)
	}
	return strings.Join(out, " ")
}

// changeResourceClaim changes the status of a claim, as its controller or a driver does.
func (c cluster) changeResourceClaim(name string, change func(*resourcev1.ResourceClaim)) {
	c.t.Helper()
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim := c.getResourceClaim(name)
		change(claim)
		_, err := c.Client().ResourceV1().ResourceClaims("default").UpdateStatus(background, claim, metav1.UpdateOptions{})
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
}

func withResourceClaim(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: &name}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "devices"}}
	}
}

const unhelpful = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."

// A pod goes where there are devices for its claim, which the scheduler allocates and reserves for it. Others wait until they are free.
func TestAllocatesDevices(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.node(node("n2", "4"))
	c.deviceSlice("n2", []string{"small-0", "large-0"})
	c.resourceClaim("one", exactly("large"))
	c.resourceClaim("two", exactly("large"))
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("first", "100m", withResourceClaim("one")))
	c.refused("first", "0/2 nodes are available: request r: device class large does not exist. "+unhelpful)
	c.deviceClass("large", `device.driver == "gpu.example" && device.attributes["gpu.example"].model == "large"`)
	if node := c.bound("first"); node != "n2" {
		t.Errorf("the pod is on %s", node)
	}
	if got := c.allocated("one"); got != "n2/large-0 for first" {
		t.Errorf("the claim has %s", got)
	}
	if claim := c.getResourceClaim("one"); !slices.Contains(claim.Finalizers, resourcev1.Finalizer) || claim.Status.Allocation.AllocationTimestamp == nil {
		t.Errorf("the claim has finalizers %v and was allocated at %v", claim.Finalizers, claim.Status.Allocation.AllocationTimestamp)
	}
	c.pod(pod("beside", "100m", withResourceClaim("one")))
	if node := c.bound("beside"); node != "n2" {
		t.Errorf("the pod that shares the claim is on %s", node)
	}
	if got := c.allocated("one"); got != "n2/large-0 for first beside" {
		t.Errorf("the claim has %s", got)
	}
	c.pod(pod("second", "100m", withResourceClaim("two")))
	c.refused("second", "0/2 nodes are available: 2 cannot allocate all claims. "+unhelpful)
	c.changeResourceClaim("one", func(claim *resourcev1.ResourceClaim) { claim.Status = resourcev1.ResourceClaimStatus{} })
	c.bound("second")
	if got := c.allocated("two"); got != "n2/large-0 for second" {
		t.Errorf("the claim has %s", got)
	}
}

// Of several pods that are scheduled at once, each gets devices of its own, before the API knows.
func TestReservesDevices(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.node(node("n2", "4"))
	c.deviceClass("any", "")
	c.deviceSlice("n1", []string{"a-0", "a-1"})
	c.deviceSlice("n2", []string{"b-0"})
	for i := range 5 {
		c.resourceClaim(fmt.Sprint("claim", i), exactly("any"))
		c.pod(pod(fmt.Sprint("web", i), "100m", withResourceClaim(fmt.Sprint("claim", i))))
	}
	start(t, c.Server, scheduler.Config{})
	var devices []string
	eventually(t, "three pods are bound", func() bool {
		devices = nil
		for i := range 5 {
			if c.get(fmt.Sprint("web", i)).Spec.NodeName != "" {
				got, _, _ := strings.Cut(c.allocated(fmt.Sprint("claim", i)), " ")
				devices = append(devices, got)
			}
		}
		return len(devices) == 3
	})
	slices.Sort(devices)
	if got := strings.Join(devices, " "); got != "n1/a-0 n1/a-1 n2/b-0" {
		t.Errorf("the pods have %s", got)
	}
}

// A pod whose claim is made from a template is gated until the claim exists.
func TestWaitsForClaimFromTemplate(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.deviceClass("any", "")
	c.deviceSlice("n1", []string{"a-0"})
	start(t, c.Server, scheduler.Config{})
	template := "template"
	made := c.pod(pod("web", "100m", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: &template}}
	}))
	c.pod(pod("other", "100m"))
	c.bound("other")
	if n := len(c.attempts("web")); n != 0 {
		t.Errorf("the pod was tried %d times", n)
	}
	yes := true
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "web-devices", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod",
		Name: "web", UID: made.UID, Controller: &yes}}}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{exactly("any")}}}}
	if _, err := c.Client().ResourceV1().ResourceClaims("default").Create(background, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made = c.get("web")
	made.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "devices", ResourceClaimName: &claim.Name}}
	if _, err := c.Client().CoreV1().Pods("default").UpdateStatus(background, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.bound("web")
	if got := c.allocated("web-devices"); got != "n1/a-0 for web" {
		t.Errorf("the claim has %s", got)
	}
}

// Devices with taints, their driver's or a rule's, are for claims that tolerate them.
func TestDeviceTaints(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.deviceClass("any", "")
	c.deviceSlice("n1", []string{"a-0"})
	driver := "gpu.example"
	rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &driver}, Taint: resourcev1.DeviceTaint{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoSchedule}}}
	if _, err := c.Client().ResourceV1().DeviceTaintRules().Create(background, rule, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.resourceClaim("one", exactly("any"))
	c.resourceClaim("brave", exactly("any", resourcev1.DeviceToleration{Key: "broken", Operator: resourcev1.DeviceTolerationOpExists}))
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("first", "100m", withResourceClaim("one")))
	c.refused("first", "0/1 nodes are available: 1 cannot allocate all claims. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")
	c.pod(pod("brave", "100m", withResourceClaim("brave")))
	c.bound("brave")
	c.changeResourceClaim("brave", func(claim *resourcev1.ResourceClaim) { claim.Status = resourcev1.ResourceClaimStatus{} })
	if err := c.Client().ResourceV1().DeviceTaintRules().Delete(background, "broken", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.bound("first")
}

// Of alternatives, the pod goes where the first is available.
func TestPrefersFirstAlternative(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "40"))
	c.node(node("n2", "4"))
	c.deviceClass("small", `device.attributes["gpu.example"].model == "small"`)
	c.deviceClass("large", `device.attributes["gpu.example"].model == "large"`)
	c.deviceSlice("n1", []string{"small-0"})
	c.deviceSlice("n2", []string{"large-0"})
	c.resourceClaim("one", resourcev1.DeviceRequest{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "best", DeviceClassName: "large"}, {Name: "good", DeviceClassName: "small"}}})
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("web", "1", withResourceClaim("one")))
	c.bound("web")
	if got := c.allocated("one"); got != "n2/large-0 for web" {
		t.Errorf("the claim has %s", got)
	}
}

// An extended resource that a class provides is allocated by a claim that the scheduler creates.
func TestExtendedResourceByDevices(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.node(node("n2", "4"))
	c.deviceSlice("n2", []string{"a-0", "a-1"})
	start(t, c.Server, scheduler.Config{})
	gpus := func(n string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse(n)}
			p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse(n)
		}
	}
	c.pod(pod("web", "100m", gpus("2")))
	c.refused("web", "0/2 nodes are available: 2 Insufficient example.com/gpu. "+unhelpful)
	gpu := "example.com/gpu"
	c.deviceClass("gpu", "", func(class *resourcev1.DeviceClass) { class.Spec.ExtendedResourceName = &gpu })
	if node := c.bound("web"); node != "n2" {
		t.Errorf("the pod is on %s", node)
	}
	status := c.get("web").Status.ExtendedResourceClaimStatus
	if status == nil || len(status.RequestMappings) != 1 || status.RequestMappings[0] != (corev1.ContainerExtendedResourceRequest{ContainerName: "c", ResourceName: gpu, RequestName: "container-0-request-1"}) {
		t.Fatalf("the pod's status has %+v", status)
	}
	if got := c.allocated(status.ResourceClaimName); got != "n2/a-0 n2/a-1 for web" {
		t.Errorf("the claim has %s", got)
	}
	if claim := c.getResourceClaim(status.ResourceClaimName); claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || claim.OwnerReferences[0].Name != "web" {
		t.Errorf("the claim is %+v", claim.ObjectMeta)
	}
	c.pod(pod("more", "100m", gpus("1")))
	c.refused("more", "0/2 nodes are available: 2 cannot allocate all claims. "+unhelpful)
}

// A claim that is allocated where the pod cannot run, and that nobody uses, is released and allocated elsewhere.
func TestReleasesClaim(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.deviceClass("any", "")
	c.deviceSlice("n1", []string{"a-0"})
	c.resourceClaim("one", exactly("any"))
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("first", "100m", withResourceClaim("one")))
	c.bound("first")
	c.end("first")
	c.changeResourceClaim("one", func(claim *resourcev1.ResourceClaim) { claim.Status.ReservedFor = nil })
	c.patchNode("n1", `{"spec":{"unschedulable":true}}`)
	c.node(node("n2", "4"))
	c.deviceSlice("n2", []string{"b-0"})
	c.pod(pod("second", "100m", withResourceClaim("one")))
	if node := c.bound("second"); node != "n2" {
		t.Errorf("the pod is on %s", node)
	}
	if got := c.allocated("one"); got != "n2/b-0 for second" {
		t.Errorf("the claim has %s", got)
	}
	c.event("second", "Warning FailedScheduling Scheduling default-scheduler 0/2 nodes are available: 1 node(s) were unschedulable, 1 resourceclaim not available on the node. "+
		"deallocation of ResourceClaim completed, "+unhelpful)
}

// A device that must be attached is: the pod is bound when its conditions say so. One that fails is given up.
func TestBindingConditions(t *testing.T) {
	c := newCluster(t)
	c.node(node("n1", "4"))
	c.deviceClass("any", "")
	c.deviceSlice("n1", []string{"a-0"}, func(d *resourcev1.Device) {
		d.BindingConditions, d.BindingFailureConditions = []string{"attached"}, []string{"failed"}
	})
	c.resourceClaim("one", exactly("any"))
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("web", "100m", withResourceClaim("one")))
	c.event("web", "Normal BindingConditionsPending Scheduling default-scheduler waiting for binding conditions for device on node n1")
	say := func(condition string) {
		c.changeResourceClaim("one", func(claim *resourcev1.ResourceClaim) {
			claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "gpu.example", Pool: "n1", Device: "a-0", Conditions: []metav1.Condition{{
				Type: condition, Status: metav1.ConditionTrue, Reason: "Tried", Message: "so it is", LastTransitionTime: metav1.Now()}}}}
		})
	}
	if node := c.get("web").Spec.NodeName; node != "" {
		t.Fatalf("the pod is on %s", node)
	}
	say("failed")
	c.event("web", `Warning FailedScheduling Scheduling default-scheduler running PreBind plugin "DynamicResources": device binding failed: claim=one, reason=Tried, message="so it is"`)
	eventually(t, "the device is allocated anew", func() bool {
		claim := c.getResourceClaim("one")
		return claim.Status.Allocation != nil && len(claim.Status.ReservedFor) == 1 && claim.Status.Devices == nil
	})
	say("attached")
	c.bound("web")
}
