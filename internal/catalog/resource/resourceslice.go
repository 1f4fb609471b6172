package resource

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/nodeselector"
)

// ResourceSlice declares slices, in which drivers publish the devices of a pool.
var ResourceSlice = catalog.Resource[resourcev1.ResourceSlice]{
	Group: group, Version: version, Kind: "ResourceSlice", Plural: "resourceslices",
	Deletion:            catalog.Deletion[resourcev1.ResourceSlice]{ReturnsObject: true},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultSlice,
	PrepareCreate:       func(s *resourcev1.ResourceSlice, _ catalog.Request) { dropFromSlice(s, nil) },
	PrepareUpdate:       func(new, old *resourcev1.ResourceSlice) { dropFromSlice(new, old) },
	Changed:             catalog.SpecChanged[resourcev1.ResourceSlice],
	Validate:            func(s *resourcev1.ResourceSlice) field.ErrorList { return validateSlice(s, nil) },
	ValidateUpdate:      func(new, old *resourcev1.ResourceSlice) field.ErrorList { return validateSlice(new, &old.Spec) },
	Warnings: func(s, _ *resourcev1.ResourceSlice) []string {
		if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
			return nil
		}
		return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
	},
	Fields: []catalog.Field[resourcev1.ResourceSlice]{
		{Name: resourcev1.ResourceSliceSelectorNodeName, Value: func(s *resourcev1.ResourceSlice) string { return ptr.Deref(s.Spec.NodeName, "") }},
		{Name: resourcev1.ResourceSliceSelectorDriver, Value: func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver }},
		{Name: resourcev1.ResourceSliceSelectorPoolName, Value: func(s *resourcev1.ResourceSlice) string { return s.Spec.Pool.Name }},
	},
	Columns:  sliceColumns,
	Complete: true,
}

func validateSlice(s *resourcev1.ResourceSlice, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	p, spec := at(field.NewPath("spec")), &s.Spec
	checkDriver(p.Part, "driver", spec.Driver)
	checkResourcePool(p.Part.Child("pool"), &spec.Pool)
	if old != nil {
		p.child("pool").Immutable("name", spec.Pool.Name, old.Pool.Name)
		p.Immutable("driver", spec.Driver, old.Driver)
		p.Immutable("nodeName", spec.NodeName, old.NodeName)
	}
	checkSliceNodes(p.Part, spec)
	if spec.SharedCounters != nil && spec.Devices != nil {
		p.Invalid("", "", "only one of `sharedCounters` or `devices` is allowed")
	}
	checkDevices(p, spec, old)
	set(p, "sharedCounters", spec.SharedCounters, resourcev1.ResourceSliceMaxCounterSets,
		func(c *resourcev1.CounterSet) string { return c.Name }, func(p part, c *resourcev1.CounterSet) {
			checkCounters(p, "name", c.Name, c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet)
		})
	return p.errors()
}

func checkResourcePool(p *check.Part, pool *resourcev1.ResourcePool) {
	checkPool(p, "name", pool.Name)
	if pool.ResourceSliceCount <= 0 {
		p.Invalid("resourceSliceCount", pool.ResourceSliceCount, "must be greater than zero")
	}
	if pool.Generation < 0 {
		p.Invalid("generation", pool.Generation, "must be greater than or equal to zero")
	}
}

// checkSliceNodes requires exactly one of the fields that select the nodes of a slice.
func checkSliceNodes(p *check.Part, spec *resourcev1.ResourceSliceSpec) {
	ways := nodeWays(p, spec.NodeName, spec.NodeSelector, spec.AllNodes, "must be either unset or set to a non-empty string")
	if s := spec.NodeSelector; s != nil && len(s.NodeSelectorTerms) != 1 {
		// One term is easier to merge with those of other slices.
		p.Child("nodeSelector").Invalid("nodeSelectorTerms", check.Internal(s.NodeSelectorTerms), "must have exactly one node selector term")
	}
	if per := spec.PerDeviceNodeSelection; per != nil {
		if *per {
			ways = append(ways, "`perDeviceNodeSelection`")
		} else {
			p.Invalid("perDeviceNodeSelection", false, "must be either unset or set to true")
		}
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	switch {
	case len(ways) == 0:
		p.Required("", one)
	case len(ways) > 1:
		p.Invalid("", "{"+strings.Join(ways, ", ")+"}", one+", but multiple fields are set")
	}
}

// nodeWays validates each field that selects the nodes of devices, and returns those that are set.
func nodeWays(p *check.Part, name *string, selector *corev1.NodeSelector, all *bool, emptyName string) []string {
	var ways []string
	if name != nil {
		if *name == "" {
			p.Invalid("nodeName", *name, emptyName)
		} else {
			ways = append(ways, "`nodeName`")
			p.Format("nodeName", *name, isSubdomainName)
		}
	}
	if selector != nil {
		ways = append(ways, "`nodeSelector`")
		p.Add(nodeselector.Validate(selector, false, p.Path("nodeSelector"))...)
	}
	if all != nil {
		if *all {
			ways = append(ways, "`allNodes`")
		} else {
			p.Invalid("allNodes", false, "must be either unset or set to true")
		}
	}
	return ways
}

// dropFromSlice clears the fields of features that are off by default, unless the old slice has them.
func dropFromSlice(s, old *resourcev1.ResourceSlice) {
	has := inUse(old)
	if !has.partitionType {
		s.Spec.PartitionTypeAttribute = nil
	}
	if !has.skips {
		s.Spec.SkipNodeOperations = nil
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if !has.allocatable {
			d.NodeAllocatableResources = nil
		}
		for j := range d.ConsumesCounters {
			if !has.groups {
				d.ConsumesCounters[j].CompatibilityGroups = nil
			}
		}
		for name, a := range d.Attributes {
			if !has.lists && isList(&a) {
				a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
				d.Attributes[name] = a
			}
		}
	}
}

type sliceFeatures struct{ partitionType, skips, allocatable, groups, lists bool }

func inUse(s *resourcev1.ResourceSlice) sliceFeatures {
	if s == nil {
		return sliceFeatures{}
	}
	has := sliceFeatures{partitionType: s.Spec.PartitionTypeAttribute != nil, skips: len(s.Spec.SkipNodeOperations) > 0}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		has.allocatable = has.allocatable || len(d.NodeAllocatableResources) > 0
		for _, c := range d.ConsumesCounters {
			has.groups = has.groups || len(c.CompatibilityGroups) > 0
		}
		for _, a := range d.Attributes {
			has.lists = has.lists || isList(&a)
		}
	}
	return has
}

func isList(a *resourcev1.DeviceAttribute) bool {
	return a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil
}

var sliceDoc = resourcev1.ResourceSliceSpec{}.SwaggerDoc()

var sliceColumns = []catalog.Column[resourcev1.ResourceSlice]{
	catalog.NameColumn[resourcev1.ResourceSlice](),
	{Name: "Node", Description: sliceDoc["nodeName"], Cell: func(s *resourcev1.ResourceSlice, _ time.Time) any { return ptr.Deref(s.Spec.NodeName, "") }},
	{Name: "Driver", Description: sliceDoc["driver"], Cell: func(s *resourcev1.ResourceSlice, _ time.Time) any { return s.Spec.Driver }},
	{Name: "Pool", Description: resourcev1.ResourcePool{}.SwaggerDoc()["name"], Cell: func(s *resourcev1.ResourceSlice, _ time.Time) any { return s.Spec.Pool.Name }},
	catalog.AgeColumn[resourcev1.ResourceSlice](),
}
