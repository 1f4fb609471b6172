package scheduling_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"skiff/internal/scheduling"
)

// storyDevices holds the devices and ResourceClaims of a story. Its allocator knows one thing: which devices a node has of a class.
//
//	resourceclaim NAME class=C on=NODE device=D for=POD deleted pending owner=POD     (indented: the spec; on: it is allocated there)
//	deviceclass NAME resource=example.com/gpu
//	devices NODE class=C names=d1,d2
type storyDevices struct {
	claims  []*resourcev1.ResourceClaim
	classes []*resourcev1.DeviceClass
	pending map[types.UID]bool
	free    map[string]map[string][]string // by node and class
}

func (d *storyDevices) ResourceClaim(namespace, name string) *resourcev1.ResourceClaim {
	return named(d.claims, namespace, name)
}
func (d *storyDevices) ExtendedResourceClaim(pod *corev1.Pod) *resourcev1.ResourceClaim {
	i := slices.IndexFunc(d.claims, func(c *resourcev1.ResourceClaim) bool { return c.Annotations != nil && metav1.IsControlledBy(c, pod) })
	if i < 0 {
		return nil
	}
	return d.claims[i]
}
func (d *storyDevices) IsBeingAllocated(claim types.UID) bool                       { return d.pending[claim] }
func (d *storyDevices) Class(name string) *resourcev1.DeviceClass                   { return named(d.classes, "", name) }
func (d *storyDevices) Now() time.Time                                              { return time.Unix(1e9, 0) }
func (d *storyDevices) Allocator(time.Duration) (scheduling.DeviceAllocator, error) { return d, nil }
func (d *storyDevices) ClassOf(name corev1.ResourceName) *resourcev1.DeviceClass {
	for _, c := range d.classes {
		if c.Spec.ExtendedResourceName != nil && *c.Spec.ExtendedResourceName == string(name) {
			return c
		}
	}
	return nil
}

// Allocate takes for each request the first devices that are free.
func (d *storyDevices) Allocate(n *corev1.Node, claims []*resourcev1.ResourceClaim) (out []resourcev1.AllocationResult, err error) {
	taken := map[string]bool{}
	take := func(result *resourcev1.AllocationResult, request, class string, count int64) bool {
		for _, name := range d.free[n.Name][class] {
			if count > 0 && !taken[name] {
				taken[name] = true
				count--
				result.Devices.Results = append(result.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: request, Pool: n.Name, Device: name})
			}
		}
		return count == 0
	}
	for _, c := range claims {
		var result resourcev1.AllocationResult
		for _, r := range c.Spec.Devices.Requests {
			if r.Exactly != nil {
				if r.Exactly.DeviceClassName == "broken" {
					return nil, errors.New("the selector is broken")
				}
				if !take(&result, r.Name, r.Exactly.DeviceClassName, max(r.Exactly.Count, 1)) {
					return nil, nil
				}
			} else if !slices.ContainsFunc(r.FirstAvailable, func(sub resourcev1.DeviceSubRequest) bool {
				return take(&result, r.Name+"/"+sub.Name, sub.DeviceClassName, 1)
			}) {
				return nil, nil
			}
		}
		out = append(out, result)
	}
	return out, nil
}

// tell adds the object of a line. It returns nil if the line is about something else.
func (d *storyDevices) tell(words []string, more string) any {
	o := options(words[2:])
	switch words[0] {
	case "deviceclass":
		c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: words[1]}}
		if name, ok := o["resource"]; ok {
			c.Spec.ExtendedResourceName = &name
		}
		d.classes = append(d.classes, c)
		return c
	case "devices":
		if d.free == nil {
			d.free = map[string]map[string][]string{}
		}
		if d.free[words[1]] == nil {
			d.free[words[1]] = map[string][]string{}
		}
		d.free[words[1]][o["class"]] = strings.Split(o["names"], ",")
		return d
	case "resourceclaim":
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: words[1], UID: types.UID("uid-" + words[1])}}
		if class, ok := o["class"]; ok {
			c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}
		}
		if err := yaml.UnmarshalStrict([]byte(more), &c.Spec); err != nil {
			return err
		}
		if node, ok := o["on"]; ok {
			c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
			c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Request: "r", Pool: node, Device: o["device"]}}
		}
		if since, ok := o["unready-for"]; ok { // the device needs a condition, and has been allocated for that long
			age, err := time.ParseDuration(since)
			if err != nil {
				return err
			}
			c.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: d.Now().Add(-age)}
			c.Status.Allocation.Devices.Results[0].BindingConditions = []string{"attached"}
		}
		if pod, ok := o["for"]; ok {
			c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID(pod)}}
		}
		if _, ok := o["deleted"]; ok {
			c.DeletionTimestamp = &metav1.Time{}
		}
		if _, ok := o["pending"]; ok {
			d.pending = map[types.UID]bool{c.UID: true}
		}
		if owner, ok := o["owner"]; ok {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: owner, UID: types.UID(owner), Controller: ptrTo(true)}}
		}
		if _, ok := o["extended"]; ok {
			c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
		}
		d.claims = append(d.claims, c)
		return c
	}
	return nil
}

var deviceKinds = map[string]scheduling.Kind{"resourceclaim": scheduling.ResourceClaimKind, "deviceclass": scheduling.DeviceClassKind, "resourceslice": scheduling.ResourceSliceKind}

// later is something that happens to an object of devices.
func (d *storyDevices) later(words []string, more string) scheduling.Event {
	e := scheduling.Event{Kind: deviceKinds[words[1]], Devices: d}
	if words[0] != "add" {
		if words[1] == "deviceclass" {
			e.Old = d.Class(words[2])
		} else {
			e.Old = d.ResourceClaim("default", words[2])
		}
	}
	if words[0] != "delete" {
		e.New = (&storyDevices{}).tell(words[1:], more)
	}
	e.Action = map[string]scheduling.Action{"add": scheduling.Add, "change": scheduling.Update, "delete": scheduling.Delete}[words[0]]
	return e
}

// describeDevices prints what is reserved of devices.
func describeDevices(b *strings.Builder, r *scheduling.DeviceReservation) {
	for _, c := range r.Claims {
		fmt.Fprintf(b, "claim %s%s", c.Claim.Name, c.Claim.GenerateName)
		if c.Devices == nil {
			fmt.Fprint(b, " as it is allocated")
		} else {
			for _, d := range c.Devices.Devices.Results {
				fmt.Fprintf(b, " %s=%s/%s", d.Request, d.Pool, d.Device)
			}
		}
		fmt.Fprintln(b)
	}
	for _, m := range r.Mappings {
		fmt.Fprintf(b, "container %s uses %s of %s\n", m.ContainerName, m.RequestName, m.ResourceName)
	}
	fmt.Fprintf(b, "to be ready in %v\n", r.Timeout)
}

// release prints what is released when the pod fits on no node.
func (s *story) release(name string) string {
	snapshot, pod := s.snapshot(), s.find(name)
	for _, plugin := range s.profileOf().Filters {
		if releaser, ok := plugin.PreFilter(pod, snapshot).Check.(scheduling.Releaser); ok {
			if r := releaser.Release(snapshot.Nodes()); r != nil {
				return fmt.Sprintf("%s: %s\n", r.Claim.Name, r.Message())
			}
		}
	}
	return "nothing is released\n"
}
