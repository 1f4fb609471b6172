package scheduling

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	schedv1 "k8s.io/kube-scheduler/config/v1"
)

// dynamicResources allows nodes that can use the devices that are allocated to the pod's ResourceClaims, or where there are devices to allocate. Which are
// allocated on the node that was chosen is a DeviceReservation. Extended resources that a DeviceClass provides are allocated by a claim of their own, on
// nodes that have none of them from a device plugin.
type dynamicResources struct{ filterTimeout, bindingTimeout time.Duration }

func newDynamicResources(args *schedv1.DynamicResourcesArgs) *dynamicResources {
	return &dynamicResources{args.FilterTimeout.Duration, args.BindingTimeout.Duration}
}

func (*dynamicResources) Name() string { return DynamicResources }

func (*dynamicResources) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{NodeKind, Add | UpdateNodeLabel | UpdateNodeAllocatable, nil},
		{ResourceClaimKind, Add | Update | Delete, resourceClaimMayHelp},
		{TargetPod, UpdatePodGeneratedResourceClaim, func(_ *Pod, e Event) bool {
			_, err := ResourceClaims(e.NewPod.Pod, e.Devices)
			return err == nil
		}},
		{DeviceClassKind, Add | Update, nil},
		{ResourceSliceKind, Add | Update, nil},
	}
}

// resourceClaimMayHelp reports whether devices were freed, or a claim of the pod was created or has another status.
func resourceClaimMayHelp(pod *Pod, e Event) bool {
	old, new := updated[*resourcev1.ResourceClaim](e)
	if new == nil {
		return old.Status.Allocation != nil || metav1.IsControlledBy(old, pod.Pod)
	}
	claims, err := ResourceClaims(pod.Pod, e.Devices)
	if err != nil {
		return false
	}
	if old != nil && old.Status.Allocation != nil && new.Status.Allocation == nil {
		return true
	}
	if !slices.ContainsFunc(claims, func(c *resourcev1.ResourceClaim) bool { return c.UID == new.UID }) {
		return false
	}
	return old == nil || !equality.Semantic.DeepEqual(&old.Status, &new.Status)
}

func noDevice(reason string) *Status {
	return refuse(DynamicResources, UnschedulableAndUnresolvable, reason)
}

func (p *dynamicResources) PreFilter(pod *Pod, s *Snapshot) PreFilterResult {
	claims, status := p.claimsOf(pod, s.devices)
	if claims == nil || status != nil {
		return PreFilterResult{Status: status}
	}
	return PreFilterResult{Check: claims, Uncached: true}
}

// deviceClaims is the Check of dynamicResources.
type deviceClaims struct {
	plugin    *dynamicResources
	devices   Devices
	pod       *Pod
	claims    []podResourceClaim
	extended  *extendedClaim  // nil if no extended resources of the pod may be provided by devices
	allocator DeviceAllocator // nil if all claims are allocated
}

// podResourceClaim is a claim of the pod.
type podResourceClaim struct {
	*resourcev1.ResourceClaim
	nodes *nodeaffinity.NodeSelector // that can use its devices; nil if it is not allocated, or if all can
}

// claimsOf returns the claims of a pod; nil if it has none.
func (p *dynamicResources) claimsOf(pod *Pod, devices Devices) (*deviceClaims, *Status) {
	if len(pod.Spec.ResourceClaims) == 0 && len(pod.Requests.Scalars) == 0 {
		return nil, nil
	}
	claims, err := ResourceClaims(pod.Pod, devices)
	if err != nil {
		return nil, noDevice(err.Error())
	}
	c := &deviceClaims{plugin: p, devices: devices, pod: pod, extended: newExtendedClaim(pod, devices)}
	if len(claims) == 0 && c.extended == nil {
		return nil, nil
	}
	allocate := c.extended != nil
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			allocate = true
			if status := c.allocatable(claim); status != nil {
				return nil, status
			}
			c.claims = append(c.claims, podResourceClaim{claim, nil})
			continue
		}
		var nodes *nodeaffinity.NodeSelector
		if selector := claim.Status.Allocation.NodeSelector; selector != nil {
			if nodes, err = nodeaffinity.NewNodeSelector(selector); err != nil {
				return nil, failure(DynamicResources, err)
			}
		}
		c.claims = append(c.claims, podResourceClaim{claim, nodes})
	}
	if allocate {
		if c.allocator, err = devices.Allocator(p.filterTimeout); err != nil {
			return nil, failure(DynamicResources, err)
		}
	}
	return c, nil
}

// allocatable returns why a claim cannot be allocated on any node.
func (c *deviceClaims) allocatable(claim *resourcev1.ResourceClaim) *Status {
	if c.devices.IsBeingAllocated(claim.UID) {
		return noDevice(fmt.Sprintf("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name))
	}
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		switch {
		case r.Exactly != nil:
			if status := c.classExists(r.Exactly.DeviceClassName, r.Name); status != nil {
				return status
			}
		case len(r.FirstAvailable) > 0:
			for _, sub := range r.FirstAvailable {
				if status := c.classExists(sub.DeviceClassName, r.Name+"/"+sub.Name); status != nil {
					return status
				}
			}
		default:
			return noDevice(fmt.Sprintf("resource claim %s/%s, request %s: unknown request type", claim.Namespace, claim.Name, r.Name))
		}
	}
	return nil
}

func (c *deviceClaims) classExists(class, request string) *Status {
	if class == "" {
		return failure(DynamicResources, fmt.Errorf("request %s: unsupported request type", request))
	}
	if c.devices.Class(class) == nil {
		return noDevice(fmt.Sprintf("request %s: device class %s does not exist", request, class))
	}
	return nil
}

// Filter refuses the node if it cannot use the devices that are allocated, or has none to allocate.
func (c *deviceClaims) Filter(n *Node) *Status {
	_, status := c.allocate(n)
	return status
}

// nodeDevices is what the claims of a pod get on a node.
type nodeDevices struct {
	claims   []*resourcev1.ResourceClaim   // those to allocate
	devices  []resourcev1.AllocationResult // theirs, in the same order
	extended *resourcev1.ResourceClaim     // the one of them for extended resources; nil if there is none
	mappings []corev1.ContainerExtendedResourceRequest
}

func (c *deviceClaims) allocate(n *Node) (out nodeDevices, status *Status) {
	if c.extended != nil {
		if status := c.extended.onNode(n, &out); status != nil {
			return out, status
		}
		if out.extended == nil && len(c.claims) == 0 {
			return out, nil // a device plugin provides them
		}
	}
	if slices.ContainsFunc(c.claims, func(claim podResourceClaim) bool { return c.unavailable(claim, n.Node) }) {
		return out, noDevice("resourceclaim not available on the node")
	}
	for _, claim := range c.claims {
		if claim.Status.Allocation == nil {
			out.claims = append(out.claims, claim.ResourceClaim)
		}
	}
	if out.extended != nil {
		out.claims = append(out.claims, out.extended)
	}
	if len(out.claims) == 0 {
		return out, nil
	}
	var err error
	out.devices, err = c.allocator.Allocate(n.Node, out.claims)
	switch {
	case errors.Is(err, ErrAllocationTimeout):
		return out, failure(DynamicResources, fmt.Errorf("node %s: %w", n.Name, err))
	case errors.Is(err, ErrNoDevices):
		return out, noDevice(err.Error())
	case err != nil:
		return out, failure(DynamicResources, err)
	case len(out.devices) != len(out.claims):
		return out, noDevice("cannot allocate all claims")
	}
	return out, nil
}

// unavailable reports whether the devices that are allocated to a claim cannot be used on the node, or have failed to become ready.
func (c *deviceClaims) unavailable(claim podResourceClaim, n *corev1.Node) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	if claim.nodes != nil && !claim.nodes.Match(n) {
		return true
	}
	ready, err := DevicesReady(claim.ResourceClaim)
	return err != nil || !ready && c.bindingTimedOut(claim.ResourceClaim)
}

func (c *deviceClaims) bindingTimedOut(claim *resourcev1.ResourceClaim) bool {
	deadline, ok := BindingDeadline(claim, c.plugin.bindingTimeout)
	return ok && deadline.Before(c.devices.Now())
}

// DeviceReservation is what dynamicResources reserves for a pod: devices for claims that are not allocated, and the claims for the pod. The pod can be bound
// when all devices are ready.
type DeviceReservation struct {
	Node   string
	Claims []ReservedClaim
	// Extended is the claim to create for extended resources, the last of Claims, and Mappings which request of it each container uses.
	Extended *resourcev1.ResourceClaim
	Mappings []corev1.ContainerExtendedResourceRequest
	// Timeout is how long after their allocation to wait until devices are ready.
	Timeout time.Duration
}

// ReservedClaim is a claim with what is to be allocated to it; nil if it is allocated.
type ReservedClaim struct {
	Claim   *resourcev1.ResourceClaim
	Devices *resourcev1.AllocationResult
}

// Plugin returns the name of the plugin.
func (*DeviceReservation) Plugin() string { return DynamicResources }

// Reserve returns the DeviceReservation for a node.
func (c *deviceClaims) Reserve(n *Node) (Reservation, error) {
	found, status := c.allocate(n)
	if status != nil {
		if status.Err != nil {
			return nil, status.Err
		}
		return nil, errors.New(status.Message()) // it has changed since Filter
	}
	r := &DeviceReservation{Node: n.Name, Extended: found.extended, Mappings: found.mappings, Timeout: c.plugin.bindingTimeout}
	for _, claim := range c.claims {
		if claim.Status.Allocation != nil {
			r.Claims = append(r.Claims, ReservedClaim{Claim: claim.ResourceClaim})
		}
	}
	for i, claim := range found.claims {
		r.Claims = append(r.Claims, ReservedClaim{claim, &found.devices[i]})
	}
	if len(r.Claims) == 0 {
		return nil, nil
	}
	return r, nil
}

// ClaimRelease releases a claim that keeps a pod from all nodes, so that it can be allocated elsewhere.
type ClaimRelease struct {
	Claim *resourcev1.ResourceClaim
	// Delete is set for claims of extended resources: the scheduler creates another.
	Delete bool
}

// Message says what is done, as in Events.
func (r *ClaimRelease) Message() string {
	if r.Delete {
		return "deletion of ResourceClaim completed"
	}
	return "deallocation of ResourceClaim completed"
}

// Release returns a claim that nobody else uses and that is allocated where the pod cannot use it.
func (c *deviceClaims) Release(nodes []*Node) *ClaimRelease {
	if c.extended != nil && c.extended.created {
		return &ClaimRelease{Claim: c.extended.claim, Delete: true}
	}
	for _, claim := range c.claims {
		reserved := claim.Status.ReservedFor
		if len(reserved) > 1 || len(reserved) == 1 && reserved[0].UID != c.pod.UID {
			continue
		}
		if slices.ContainsFunc(nodes, func(n *Node) bool { return c.unavailable(claim, n.Node) }) {
			return &ClaimRelease{Claim: claim.ResourceClaim}
		}
	}
	return nil
}

func (p *dynamicResources) PreScore(pod *Pod, s *Snapshot, _ []*Node) (Scorer, *Status) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil, nil
	}
	claims, status := p.claimsOf(pod, s.devices)
	if claims == nil || status != nil || !slices.ContainsFunc(claims.claims, func(claim podResourceClaim) bool {
		return slices.ContainsFunc(claim.Spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool { return len(r.FirstAvailable) > 0 })
	}) {
		return nil, status
	}
	return &deviceScorer{claims}, nil
}

// deviceScorer prefers nodes where earlier alternatives of requests are available. It allocates for each node once more.
type deviceScorer struct{ claims *deviceClaims }

func (*deviceScorer) Local() bool { return false }

func (*deviceScorer) Normalize(_ []*Node, scores []int64) { normalize(scores, false) }

func (s *deviceScorer) Score(nodes []*Node, scores []int64) {
	for i, n := range nodes {
		scores[i] = 0
		found, status := s.claims.allocate(n)
		if status != nil {
			continue
		}
		for _, claim := range s.claims.claims {
			if claim.Status.Allocation != nil {
				scores[i] += scoreAlternatives(claim.ResourceClaim, claim.Status.Allocation)
			}
		}
		for j, claim := range found.claims {
			scores[i] += scoreAlternatives(claim, &found.devices[j])
		}
	}
}

// scoreAlternatives returns the more, the earlier the alternatives are that were allocated.
func scoreAlternatives(claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult) (score int64) {
	for _, r := range claim.Spec.Devices.Requests {
		for i, sub := range r.FirstAvailable {
			name := resourceclaim.CreateSubRequestRef(r.Name, sub.Name)
			if slices.ContainsFunc(allocation.Devices.Results, func(d resourcev1.DeviceRequestAllocationResult) bool { return d.Request == name }) {
				score += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - i)
			}
		}
	}
	return score
}
