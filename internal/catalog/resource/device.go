package resource

import (
	"fmt"
	"regexp"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog/check"
)

func checkDevices(p part, spec, old *resourcev1.ResourceSliceSpec) {
	limit := resourcev1.ResourceSliceMaxDevices
	if usesAdvanced(spec.Devices) {
		limit = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	if tooMany(p.Part, "devices", spec.Devices, limit) {
		return
	}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		checkDevice(p.item("devices", i), d, deviceNamed(old, d.Name), ptr.Deref(spec.PerDeviceNodeSelection, false))
	}
	name := func(d *resourcev1.Device) string { return d.Name }
	duplicates(p.Part, "devices", spec.Devices, name, func(d *resourcev1.Device) any { return d.Name })
}

// usesAdvanced reports whether devices use features for which a slice may hold fewer devices.
func usesAdvanced(devices []resourcev1.Device) bool {
	for i := range devices {
		if len(devices[i].Taints) > 0 || len(devices[i].ConsumesCounters) > 0 {
			return true
		}
		for _, a := range devices[i].Attributes {
			if isList(&a) {
				return true
			}
		}
	}
	return false
}

func deviceNamed(spec *resourcev1.ResourceSliceSpec, name string) *resourcev1.Device {
	if spec == nil {
		return nil
	}
	for i := range spec.Devices {
		if spec.Devices[i].Name == name {
			return &spec.Devices[i]
		}
	}
	return nil
}

// checkDevice validates a device; capacities and taints that did not change since old are accepted.
func checkDevice(p part, d, old *resourcev1.Device, perDeviceNodes bool) {
	p.Format("name", d.Name, utilvalidation.IsDNS1123Label)
	checkDeviceSize(p.Part, d)
	for _, name := range sortedKeys(d.Attributes) {
		checkQualified(p.Part, "attributes", string(name))
		a := d.Attributes[name]
		checkAttribute(p, p.Path("attributes").Key(shortened(string(name))), &a)
	}
	if old == nil || !apiequality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		checkCapacities(p.Part, d)
	}
	if old == nil || !apiequality.Semantic.DeepEqual(old.Taints, d.Taints) {
		if !tooMany(p.Part, "taints", d.Taints, resourcev1.DeviceTaintsMaxLength) {
			for i := range d.Taints {
				checkTaint(p.item("taints", i), &d.Taints[i], nil)
			}
		}
	}
	set(p, "consumesCounters", d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice,
		func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet }, func(p part, c *resourcev1.DeviceCounterConsumption) {
			checkCounters(p, "counterSet", c.CounterSet, c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption)
		})
	checkDeviceNodes(p.Part, d, perDeviceNodes)
	checkBinding(p, d.BindingConditions, d.BindingFailureConditions)
}

func checkDeviceSize(p *check.Part, d *resourcev1.Device) {
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		p.Invalid("", n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice))
	}
	values := 0
	for _, a := range d.Attributes {
		values += max(1, len(a.IntValues)+len(a.BoolValues)+len(a.StringValues)+len(a.VersionValues))
	}
	if values > resourcev1.ResourceSliceMaxAttributeValuesPerDevice {
		p.Invalid("", values, fmt.Sprintf("the total number of attribute values must not exceed %d", resourcev1.ResourceSliceMaxAttributeValuesPerDevice))
	}
}

// semver is the form of a version by semver.org 2.0.0.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// attributeForms lists the fields of an attribute's value, for error messages.
const attributeForms = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"

func checkAttribute(p part, path *field.Path, a *resourcev1.DeviceAttribute) {
	var forms []string
	if a.IntValue != nil {
		forms = append(forms, "int")
	}
	if a.BoolValue != nil {
		forms = append(forms, "bool")
	}
	if a.StringValue != nil {
		forms = append(forms, "string")
		tooLong(p.Part, path.Child("string"), *a.StringValue)
	}
	if a.VersionValue != nil {
		forms = append(forms, "version")
		if !semver.MatchString(*a.VersionValue) {
			p.Add(field.Invalid(path.Child("version"), *a.VersionValue, "must be a string compatible with semver.org spec 2.0.0"))
		}
		tooLong(p.Part, path.Child("version"), *a.VersionValue)
	}
	switch {
	case isList(a): // stored while the feature was on; not validated again
	case len(forms) == 0:
		p.declared.Add(field.Invalid(path, "", "must specify one of: "+attributeForms))
	case len(forms) > 1:
		p.declared.Add(field.Invalid(path, "{"+strings.Join(forms, ", ")+"}", "must specify exactly one of: "+attributeForms))
	}
}

func tooLong(p *check.Part, path *field.Path, value string) {
	if len(value) > resourcev1.DeviceAttributeMaxValueLength {
		p.Add(field.TooLong(path, "", resourcev1.DeviceAttributeMaxValueLength))
	}
}

// checkCounters validates the counters and the name of a set. The declared rules require both.
func checkCounters(p part, nameField, name string, counters map[string]resourcev1.Counter, limit int) {
	if name == "" {
		p.declared.Required(nameField, "")
	} else {
		p.declared.Format(nameField, name, content.IsDNS1123Label)
	}
	switch {
	case len(counters) == 0:
		p.declared.Required("counters", "")
		return
	case len(counters) > limit:
		p.Add(field.TooMany(p.Path("counters"), len(counters), limit))
	}
	for _, key := range sortedKeys(counters) {
		p.declared.Format("counters", key, content.IsDNS1123Label)
	}
}

// checkDeviceNodes checks that a device selects its nodes if, and only if, its slice leaves that to devices.
func checkDeviceNodes(p *check.Part, d *resourcev1.Device, perDeviceNodes bool) {
	if !perDeviceNodes {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			p.Invalid("", nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")
		}
		return
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	switch ways := nodeWays(p, d.NodeName, d.NodeSelector, d.AllNodes, "must not be empty"); {
	case len(ways) == 0:
		p.Required("", one)
	case len(ways) > 1:
		p.Invalid("", "{"+strings.Join(ways, ", ")+"}", one)
	}
}
