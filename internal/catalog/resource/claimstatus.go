package resource

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/nodeselector"
)

// deviceID identifies a device, or the share of one that was allocated to a claim, in errors.
type deviceID struct {
	Driver, Pool, Device string
	ShareID              string
}

func statusID(d *resourcev1.AllocatedDeviceStatus) deviceID {
	return deviceID{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
}

func allocated(a *resourcev1.AllocationResult) map[deviceID]struct{} {
	if a == nil {
		return nil
	}
	ids := make(map[deviceID]struct{}, len(a.Devices.Results))
	for _, r := range a.Devices.Results {
		ids[deviceID{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, ""))}] = struct{}{}
	}
	return ids
}

func validateClaimStatus(new, old *resourcev1.ResourceClaim) field.ErrorList {
	path := field.NewPath("status")
	status, allocation := at(path), at(path)
	set(status, "reservedFor", new.Status.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize,
		func(r *resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID }, checkConsumer)
	ids := allocated(new.Status.Allocation)
	set(status, "devices", new.Status.Devices, len(new.Status.Devices), statusID, func(p part, d *resourcev1.AllocatedDeviceStatus) {
		checkDeviceStatus(p, d, ids)
	})
	checkReserved(status.Part, new, old)

	switch is, was := new.Status.Allocation, old.Status.Allocation; {
	case is == nil || apiequality.Semantic.DeepEqual(is, was):
	case was != nil:
		allocation.declared.Invalid("allocation", nil, "field cannot be modified once set")
	default:
		checkAllocation(allocation.child("allocation"), is, new.Spec.Devices.Requests)
	}
	// The allocation's handwritten rules come last, its declared rules first.
	return slices.Concat(status.Errors(), allocation.Errors(), allocation.declared.Errors(), status.declared.Errors())
}

func checkConsumer(p part, r *resourcev1.ResourceClaimConsumerReference) {
	p.Present("resource", r.Resource != "", "")
	p.Present("name", r.Name != "", "")
	p.Present("uid", r.UID != "", "")
}

// checkReserved allows only an allocated claim to be reserved, and no new reservations of a claim that is being deleted.
func checkReserved(p *check.Part, new, old *resourcev1.ResourceClaim) {
	if len(new.Status.ReservedFor) == 0 {
		return
	}
	if new.Status.Allocation == nil {
		p.Forbidden("reservedFor", "may not be specified when `allocated` is not set")
		return
	}
	isNew := func(r resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(old.Status.ReservedFor, r)
	}
	if new.DeletionTimestamp != nil && slices.ContainsFunc(new.Status.ReservedFor, isNew) {
		p.Forbidden("reservedFor", "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
	}
}

func checkDeviceStatus(p part, d *resourcev1.AllocatedDeviceStatus, allocated map[deviceID]struct{}) {
	checkDriver(p.Part, "driver", d.Driver)
	checkPool(p.Part, "pool", d.Pool)
	p.Format("device", d.Device, utilvalidation.IsDNS1123Label)
	if d.ShareID != nil {
		declare(p.declared, "shareID", d.ShareID, validate.UUID)
	}
	if _, ok := allocated[statusID(d)]; !ok {
		p.Invalid("", statusID(d), "must be an allocated device in the claim")
	}
	checkConditions(p.Part, d.Conditions, true)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		checkRaw(p.Part, "data", d.Data, false, resourcev1.AllocatedDeviceStatusDataMaxLength)
	}
	if d.NetworkData != nil {
		checkNetwork(p.child("networkData"), d.NetworkData)
	}
}

func checkNetwork(p part, n *resourcev1.NetworkDeviceData) {
	maxBytes(p.declared, "interfaceName", n.InterfaceName, resourcev1.NetworkDeviceDataInterfaceNameMaxLength)
	set(p, "ips", n.IPs, resourcev1.NetworkDeviceDataMaxIPs, itself, func(p part, ip *string) {
		p.Add(utilvalidation.IsValidInterfaceAddress(p.Path(), *ip)...)
	})
	maxBytes(p.declared, "hardwareAddress", n.HardwareAddress, resourcev1.NetworkDeviceDataHardwareAddressMaxLength)
}

func maxBytes(p *check.Part, name, value string, limit int) {
	if len(value) > limit {
		p.Add(field.TooLong(p.Path(name), "", limit))
	}
}

func checkAllocation(p part, a *resourcev1.AllocationResult, requests []resourcev1.DeviceRequest) {
	devices := p.child("devices")
	list(devices, "results", a.Devices.Results, resourcev1.AllocationResultsMaxSize, func(p part, r *resourcev1.DeviceRequestAllocationResult) {
		checkResult(p, r, requests)
	})
	list(devices, "config", a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, func(p part, c *resourcev1.DeviceAllocationConfiguration) {
		if c.Source == "" {
			p.declared.Required("source", "")
		} else {
			check.OneOf(p.declared, "source", c.Source, resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)
		}
		checkRequestRefs(p, c.Requests, requests)
		checkConfiguration(p, &c.DeviceConfiguration, false)
	})
	if a.NodeSelector != nil {
		p.Add(nodeselector.Validate(a.NodeSelector, false, p.Path("nodeSelector"))...)
	}
}

func checkResult(p part, r *resourcev1.DeviceRequestAllocationResult, requests []resourcev1.DeviceRequest) {
	checkRequestRef(p.Part, "request", r.Request, requests)
	declareDriver(p.declared, "driver", r.Driver)
	declarePool(p.declared, "pool", r.Pool)
	p.Format("device", r.Device, utilvalidation.IsDNS1123Label)
	checkBinding(p, r.BindingConditions, r.BindingFailureConditions)
	for i := range r.Tolerations {
		checkToleration(p.item("tolerations", i), &r.Tolerations[i])
	}
	if r.ShareID != nil {
		declare(p.declared, "shareID", r.ShareID, validate.UUID)
	}
}

// checkBinding validates the conditions that must be met before a pod is bound, and those that prevent its binding.
func checkBinding(p part, conditions, failures []string) {
	label := func(p part, name *string) { p.Add(metav1validation.ValidateLabelName(*name, p.Path())...) }
	shown := func(s *string) any { return *s }
	list(p, "bindingConditions", conditions, resourcev1.BindingConditionsMaxSize, label)
	list(p, "bindingFailureConditions", failures, resourcev1.BindingFailureConditionsMaxSize, label)
	duplicates(p.Part, "bindingConditions", conditions, itself, shown)
	for i, f := range failures {
		if slices.Contains(failures[:i], f) {
			p.Add(field.Duplicate(p.Path("bindingFailureConditions").Index(i), f))
		}
		if slices.Contains(conditions, f) {
			p.item("bindingFailureConditions", i).Invalid("", f, "bindingFailureConditions must not overlap with bindingConditions")
		}
	}
	if len(conditions) == 0 && len(failures) > 0 {
		p.Invalid("bindingConditions", conditions, "bindingConditions are required to use bindingFailureConditions")
	}
	if len(failures) == 0 && len(conditions) > 0 {
		p.Invalid("bindingFailureConditions", failures, "bindingFailureConditions are required to use bindingConditions")
	}
}
