package scheduling

import (
	"errors"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Errors of devices that do not become ready.
var (
	ErrDeviceBindingFailed  = errors.New("device binding failed")
	ErrDeviceBindingTimeout = errors.New("device binding timeout")
)

// DevicesReady reports whether all devices that are allocated to a claim have the conditions that they need before a pod is bound. The error is
// ErrDeviceBindingFailed if one has a condition that says that it never will.
func DevicesReady(claim *resourcev1.ResourceClaim) (bool, error) {
	if claim.Status.Allocation == nil {
		return false, nil
	}
	for _, d := range claim.Status.Allocation.Devices.Results {
		if len(d.BindingConditions) == 0 {
			continue
		}
		i := slices.IndexFunc(claim.Status.Devices, func(s resourcev1.AllocatedDeviceStatus) bool {
			return s.Driver == d.Driver && s.Pool == d.Pool && s.Device == d.Device
		})
		if i < 0 {
			return false, nil
		}
		conditions := claim.Status.Devices[i].Conditions
		for _, name := range d.BindingFailureConditions {
			if c := meta.FindStatusCondition(conditions, name); c != nil && c.Status == metav1.ConditionTrue {
				return false, fmt.Errorf("%w: claim=%s, reason=%s, message=%q", ErrDeviceBindingFailed, claim.Name, c.Reason, c.Message)
			}
		}
		if slices.ContainsFunc(d.BindingConditions, func(name string) bool { return !meta.IsStatusConditionTrue(conditions, name) }) {
			return false, nil
		}
	}
	return true, nil
}

// HasBindingConditions reports whether a device that is allocated to the claim needs conditions before a pod is bound.
func HasBindingConditions(claim *resourcev1.ResourceClaim) bool {
	return claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results,
		func(d resourcev1.DeviceRequestAllocationResult) bool { return len(d.BindingConditions) > 0 })
}

// BindingDeadline returns when devices that are allocated to the claim must be ready; false if they need not be.
func BindingDeadline(claim *resourcev1.ResourceClaim, timeout time.Duration) (time.Time, bool) {
	if !HasBindingConditions(claim) || claim.Status.Allocation.AllocationTimestamp == nil {
		return time.Time{}, false
	}
	return claim.Status.Allocation.AllocationTimestamp.Add(timeout), true
}
