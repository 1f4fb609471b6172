package scheduling

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// extendedClaim is the claim for those extended resources of a pod that devices provide.
type extendedClaim struct {
	pod     *Pod
	claim   *resourcev1.ResourceClaim
	created bool // it is left over from an earlier attempt
	classes map[corev1.ResourceName]*resourcev1.DeviceClass
}

// byDevices reports whether devices may provide the resource.
func byDevices(name corev1.ResourceName) bool {
	return IsExtended(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)
}

// deviceClassesOf returns the classes that provide extended resources of the pod; nil if there are none.
func deviceClassesOf(pod *Pod, devices Devices) (classes map[corev1.ResourceName]*resourcev1.DeviceClass) {
	for _, r := range pod.Requests.Scalars {
		if r.Amount == 0 || !byDevices(r.Name) {
			continue
		}
		if class := devices.ClassOf(r.Name); class != nil {
			if classes == nil {
				classes = map[corev1.ResourceName]*resourcev1.DeviceClass{}
			}
			classes[r.Name] = class
		}
	}
	return classes
}

// newExtendedClaim returns nil if devices provide none of the pod's extended resources.
func newExtendedClaim(pod *Pod, devices Devices) *extendedClaim {
	classes := deviceClassesOf(pod, devices)
	if classes == nil {
		return nil
	}
	if old := devices.ExtendedResourceClaim(pod.Pod); old != nil {
		return &extendedClaim{pod: pod, claim: old, created: true, classes: classes}
	}
	yes := true
	return &extendedClaim{pod: pod, classes: classes, claim: &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, GenerateName: pod.Name + "-extended-resources-", UID: pod.UID + "-extended-resources",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes}},
		Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
	}}}
}

// onNode sets the claim for the resources that the node does not have from a device plugin.
func (e *extendedClaim) onNode(n *Node, out *nodeDevices) *Status {
	if e.created {
		return noDevice("cannot schedule extended resource claim") // it is deleted, and the pod tried again
	}
	var names []corev1.ResourceName
	for _, r := range e.pod.Requests.Scalars {
		if r.Amount == 0 || !byDevices(r.Name) || n.Allocatable.Scalar(r.Name) != 0 {
			continue
		}
		if e.classes[r.Name] != nil {
			names = append(names, r.Name)
		} else if _, known := n.Status.Allocatable[r.Name]; !known {
			return noDevice("cannot fit resource")
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	requests := &extendedRequests{pod: e.pod.Pod}
	for _, name := range names {
		requests.add(name, e.classes[name].Name)
	}
	slices.SortFunc(requests.requests, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	claim := *e.claim
	claim.Spec.Devices.Requests = requests.requests
	out.extended, out.mappings = &claim, requests.mappings
	return nil
}

// extendedRequests collects requests for devices, and which container uses which.
type extendedRequests struct {
	pod      *corev1.Pod
	requests []resourcev1.DeviceRequest
	mappings []corev1.ContainerExtendedResourceRequest
}

// add adds the requests for one resource. Containers and sidecars run together, so each has a request of its own. Init containers run one after the other
// before those that come later: they use the devices of these, and of one request more, as large as the most that any of them lacks.
func (e *extendedRequests) add(name corev1.ResourceName, class string) {
	containers := slices.Concat(e.pod.Spec.InitContainers, e.pod.Spec.Containers)
	own := make([]*resourcev1.DeviceRequest, len(containers))
	for i := range containers {
		if !e.runsOnce(i) {
			request, mappings := containerRequest(i, &containers[i], name, class, nil)
			own[i], e.mappings = request, append(e.mappings, mappings...)
		}
	}
	var largest *resourcev1.DeviceRequest
	var initMappings []corev1.ContainerExtendedResourceRequest
	initRequests := map[string]bool{}
	for i := range containers {
		if !e.runsOnce(i) {
			continue
		}
		request, mappings := containerRequest(i, &containers[i], name, class, own[i:])
		if request != nil {
			initRequests[request.Name] = true
			if largest == nil || largest.Exactly.Count < request.Exactly.Count {
				largest = request
			}
		}
		initMappings = append(initMappings, mappings...)
	}
	for i := range initMappings {
		if initRequests[initMappings[i].RequestName] {
			initMappings[i].RequestName = largest.Name
		}
	}
	e.mappings = append(e.mappings, initMappings...)
	for _, request := range append(own, largest) {
		if request != nil {
			e.requests = append(e.requests, *request)
		}
	}
}

// runsOnce reports whether the i-th container is an init container that is no sidecar.
func (e *extendedRequests) runsOnce(i int) bool {
	if i >= len(e.pod.Spec.InitContainers) {
		return false
	}
	policy := e.pod.Spec.InitContainers[i].RestartPolicy
	return policy == nil || *policy != corev1.ContainerRestartPolicyAlways
}

// containerRequest returns the request for what a container needs beyond other requests that it may use, nil if they suffice, and those that it uses.
func containerRequest(index int, c *corev1.Container, name corev1.ResourceName, class string, others []*resourcev1.DeviceRequest) (*resourcev1.DeviceRequest, []corev1.ContainerExtendedResourceRequest) {
	amount := c.Resources.Requests[name]
	needed, ok := amount.AsInt64()
	if !ok || needed == 0 {
		return nil, nil
	}
	var uses []corev1.ContainerExtendedResourceRequest
	use := func(request string) {
		uses = append(uses, corev1.ContainerExtendedResourceRequest{ContainerName: c.Name, ResourceName: string(name), RequestName: request})
	}
	for _, other := range others {
		if other != nil {
			use(other.Name)
			if needed -= other.Exactly.Count; needed <= 0 {
				return nil, uses
			}
		}
	}
	// Requests are numbered by container, and by resource in the order of names.
	position := slices.Index(slices.Sorted(maps.Keys(c.Resources.Requests)), name)
	request := &resourcev1.DeviceRequest{Name: fmt.Sprintf("container-%d-request-%d", index, position), Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: needed}}
	use(request.Name)
	return request, uses
}
