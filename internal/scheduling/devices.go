package scheduling

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// Devices holds what is read of devices and of the ResourceClaims that they are allocated to. An object that does not exist is nil. Claims include what pods
// that are being bound have changed about them. Nobody may change the objects.
type Devices interface {
	ResourceClaim(namespace, name string) *resourcev1.ResourceClaim
	// ExtendedResourceClaim returns the claim that was created for the extended resources of a pod.
	ExtendedResourceClaim(*corev1.Pod) *resourcev1.ResourceClaim
	// IsBeingAllocated reports whether a pod for which the claim is allocated is being bound.
	IsBeingAllocated(claim types.UID) bool
	Class(name string) *resourcev1.DeviceClass
	// ClassOf returns the class whose devices provide an extended resource.
	ClassOf(corev1.ResourceName) *resourcev1.DeviceClass
	// Allocator returns an allocator of the devices that are free now. It may take that long for one node; 0 means any time.
	Allocator(timeout time.Duration) (DeviceAllocator, error)
	Now() time.Time
}

// DeviceAllocator finds devices for claims.
type DeviceAllocator interface {
	// Allocate returns an allocation for each claim, of devices that the node can use. It changes nothing. The error wraps ErrNoDevices if there are none,
	// and ErrAllocationTimeout if it took too long.
	Allocate(*corev1.Node, []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, error)
}

// Errors of allocators.
var (
	ErrNoDevices         = errors.New("no devices")
	ErrAllocationTimeout = errors.New("timed out trying to allocate devices")
)

// noDevices is a Devices without objects.
type noDevices struct{}

func (noDevices) ResourceClaim(string, string) *resourcev1.ResourceClaim      { return nil }
func (noDevices) ExtendedResourceClaim(*corev1.Pod) *resourcev1.ResourceClaim { return nil }
func (noDevices) IsBeingAllocated(types.UID) bool                             { return false }
func (noDevices) Class(string) *resourcev1.DeviceClass                        { return nil }
func (noDevices) ClassOf(corev1.ResourceName) *resourcev1.DeviceClass         { return nil }
func (noDevices) Now() time.Time                                              { return time.Time{} }
func (noDevices) Allocator(time.Duration) (DeviceAllocator, error) {
	return nil, errors.New("there are no devices")
}

// WithDevices returns the snapshot with these devices.
func (s *Snapshot) WithDevices(devices Devices) *Snapshot {
	out := *s
	out.devices = devices
	return &out
}

// ResourceClaims returns the claims that a pod refers to, or the first reason why it cannot use them.
func ResourceClaims(pod *corev1.Pod, devices Devices) ([]*resourcev1.ResourceClaim, error) {
	if devices == nil {
		devices = noDevices{}
	}
	var claims []*resourcev1.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue // none was needed
		}
		claim := devices.ResourceClaim(pod.Namespace, *name)
		if claim == nil {
			return nil, fmt.Errorf("could not find ResourceClaim %q", pod.Namespace+"/"+*name)
		}
		if claim.DeletionTimestamp != nil {
			return nil, fmt.Errorf("resourceclaim %q is being deleted", claim.Name)
		}
		if owned {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return nil, err
			}
		}
		claims = append(claims, claim)
	}
	return claims, nil
}
