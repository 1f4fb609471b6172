package resource

import (
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/volume"
)

// ResourceClaim declares claims: requests for devices, with their allocation and consumers.
var ResourceClaim = catalog.Resource[resourcev1.ResourceClaim]{
	Group: group, Version: version, Kind: "ResourceClaim", Plural: "resourceclaims", Namespaced: true,
	Deletion:            catalog.Deletion[resourcev1.ResourceClaim]{ReturnsObject: true},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultClaim,
	PrepareCreate:       func(c *resourcev1.ResourceClaim, _ catalog.Request) { dropFromClaim(&c.Spec) },
	PrepareUpdate: func(new, old *resourcev1.ResourceClaim) {
		if !hasDerivedAttributes(&old.Spec) {
			dropFromClaim(&new.Spec)
		}
	},
	Validate: func(c *resourcev1.ResourceClaim) field.ErrorList {
		spec := at(field.NewPath("spec"))
		checkClaimSpec(spec, &c.Spec)
		return spec.errors()
	},
	ValidateUpdate: func(new, old *resourcev1.ResourceClaim) field.ErrorList {
		if apiequality.Semantic.DeepEqual(new.Spec, old.Spec) {
			return nil
		}
		return field.ErrorList{field.Invalid(field.NewPath("spec"), nil, validation.FieldImmutableErrorMsg)}
	},
	Status: &catalog.Edit[resourcev1.ResourceClaim]{
		PrepareUpdate:  prepareClaimStatus,
		ValidateUpdate: validateClaimStatus,
		ResetFields:    []string{"metadata"},
	},
	Columns: []catalog.Column[resourcev1.ResourceClaim]{
		catalog.NameColumn[resourcev1.ResourceClaim](),
		{Name: "State", Description: "A summary of the current state (allocated, pending, reserved, etc.).",
			Cell: func(c *resourcev1.ResourceClaim, _ time.Time) any { return claimState(c) }},
		catalog.AgeColumn[resourcev1.ResourceClaim](),
	},
	Complete: true,
}

// ResourceClaimTemplate declares templates from which a claim is created for each pod that names one.
var ResourceClaimTemplate = catalog.Resource[resourcev1.ResourceClaimTemplate]{
	Group: group, Version: version, Kind: "ResourceClaimTemplate", Plural: "resourceclaimtemplates", Namespaced: true,
	Deletion:            catalog.Deletion[resourcev1.ResourceClaimTemplate]{ReturnsObject: true},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             func(t *resourcev1.ResourceClaimTemplate) { defaultClaimSpec(&t.Spec.Spec) },
	PrepareCreate:       func(t *resourcev1.ResourceClaimTemplate, _ catalog.Request) { dropFromClaim(&t.Spec.Spec) },
	PrepareUpdate: func(new, old *resourcev1.ResourceClaimTemplate) {
		if !hasDerivedAttributes(&old.Spec.Spec) {
			dropFromClaim(&new.Spec.Spec)
		}
	},
	Validate: func(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
		spec := at(field.NewPath("spec"))
		checkTemplate(spec, t)
		return spec.errors()
	},
	ValidateUpdate: func(new, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
		spec := at(field.NewPath("spec"))
		checkTemplate(spec, new)
		spec.Immutable("", new.Spec, old.Spec)
		return spec.errors()
	},
	Columns:  []catalog.Column[resourcev1.ResourceClaimTemplate]{catalog.NameColumn[resourcev1.ResourceClaimTemplate](), catalog.AgeColumn[resourcev1.ResourceClaimTemplate]()},
	Complete: true,
}

func checkTemplate(p part, t *resourcev1.ResourceClaimTemplate) {
	p.Add(volume.ValidateTemplateMeta(&t.Spec.ObjectMeta, p.Path("metadata"))...)
	checkClaimSpec(p.child("spec"), &t.Spec.Spec)
}

// dropFromClaim clears the fields of features that are off by default.
func dropFromClaim(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			r.Exactly.DerivedAttributes = nil
		}
		for j := range r.FirstAvailable {
			r.FirstAvailable[j].DerivedAttributes = nil
		}
	}
}

func hasDerivedAttributes(s *resourcev1.ResourceClaimSpec) bool {
	for _, r := range s.Devices.Requests {
		if r.Exactly != nil && len(r.Exactly.DerivedAttributes) > 0 {
			return true
		}
		for _, sub := range r.FirstAvailable {
			if len(sub.DerivedAttributes) > 0 {
				return true
			}
		}
	}
	return false
}

func claimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0:
		states = append(states, "allocated", "reserved")
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
	case c.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}

// prepareClaimStatus drops the status of devices that are no longer allocated.
func prepareClaimStatus(new, old *resourcev1.ResourceClaim) {
	metav1.ResetObjectMetaForStatus(&new.ObjectMeta, &old.ObjectMeta)
	if !hasSkipped(old.Status.Allocation) {
		dropFromAllocation(new.Status.Allocation)
	}
	was, is := allocated(old.Status.Allocation), allocated(new.Status.Allocation)
	var kept []resourcev1.AllocatedDeviceStatus
	for _, d := range new.Status.Devices {
		id := statusID(&d)
		_, before := was[id]
		_, still := is[id]
		if still || !before {
			kept = append(kept, d)
		}
	}
	new.Status.Devices = kept
}

// dropFromAllocation clears the fields of features that are off by default.
func dropFromAllocation(a *resourcev1.AllocationResult) {
	if a == nil {
		return
	}
	for i := range a.Devices.Results {
		a.Devices.Results[i].SkipNodeOperations = nil
	}
}

func hasSkipped(a *resourcev1.AllocationResult) bool {
	if a == nil {
		return false
	}
	for i := range a.Devices.Results {
		if len(a.Devices.Results[i].SkipNodeOperations) > 0 {
			return true
		}
	}
	return false
}
