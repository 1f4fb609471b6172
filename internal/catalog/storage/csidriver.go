package storage

import (
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// CSIDriver declares CSI drivers with their capabilities.
var CSIDriver = catalog.Resource[storagev1.CSIDriver]{
	Group: group, Version: version, Kind: "CSIDriver", Plural: "csidrivers",
	Deletion: catalog.Deletion[storagev1.CSIDriver]{ReturnsObject: true},
	Name:     validation.NameIsDNSSubdomain,
	Default:  defaultCSIDriver,
	PrepareUpdate: func(new, old *storagev1.CSIDriver) {
		// The first generation is 0, unlike that of resources that declare Changed.
		if !apiequality.Semantic.DeepEqual(new.Spec, old.Spec) {
			new.Generation = old.Generation + 1
		}
	},
	Validate: func(d *storagev1.CSIDriver) field.ErrorList {
		at := check.At(field.NewPath("spec"))
		checkCSIDriver(at, &d.Spec)
		return at.Errors()
	},
	ValidateUpdate: func(new, old *storagev1.CSIDriver) field.ErrorList {
		at := check.At(field.NewPath("spec"))
		checkCSIDriver(at, &new.Spec)
		at.Immutable("attachedRequired", new.Spec.AttachRequired, old.Spec.AttachRequired)
		at.Immutable("volumeLifecycleModes", new.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)
		return at.Errors()
	},
	Warnings: csiDriverWarnings,
	Columns:  csiDriverColumns,
	Complete: true,
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	fill(&s.AttachRequired, true)
	fill(&s.PodInfoOnMount, false)
	fill(&s.StorageCapacity, false)
	fill(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	fill(&s.RequiresRepublish, false)
	fill(&s.SELinuxMount, false)
	fill(&s.PreventPodSchedulingIfMissing, false)
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// checkCSIDriver validates a driver's spec. It does not require fields that are defaulted.
func checkCSIDriver(at *check.Part, s *storagev1.CSIDriverSpec) {
	if s.FSGroupPolicy != nil {
		check.OneOf(at, "fsGroupPolicy", *s.FSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	checkTokenRequests(at, s.TokenRequests)
	for _, mode := range s.VolumeLifecycleModes {
		check.OneOf(at, "volumeLifecycleModes", mode, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)
	}
	if p := s.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < 10 {
		at.Invalid("nodeAllocatableUpdatePeriodSeconds", *p, "must be greater than or equal to 10 seconds")
	}
	if s.ServiceAccountTokenInSecrets != nil && len(s.TokenRequests) == 0 {
		at.Invalid("serviceAccountTokenInSecrets", s.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified")
	}
}

func checkTokenRequests(at *check.Part, requests []storagev1.TokenRequest) {
	audiences := make(map[string]struct{}, len(requests))
	for i, r := range requests {
		at := at.Item("tokenRequests", i)
		if _, taken := audiences[r.Audience]; taken {
			at.Add(field.Duplicate(at.Path("audience"), r.Audience))
			continue
		}
		audiences[r.Audience] = struct{}{}
		switch e := r.ExpirationSeconds; {
		case e == nil:
		case *e < 10*60:
			at.Invalid("expirationSeconds", *e, "may not specify a duration less than 10 minutes")
		case *e > 1<<32:
			at.Invalid("expirationSeconds", *e, "may not specify a duration larger than 2^32 seconds")
		}
	}
}

func csiDriverWarnings(new, old *storagev1.CSIDriver) []string {
	if len(new.Spec.TokenRequests) == 0 || new.Spec.ServiceAccountTokenInSecrets != nil ||
		old != nil && apiequality.Semantic.DeepEqual(new.Spec.TokenRequests, old.Spec.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
}

var csiDriverDoc = storagev1.CSIDriverSpec{}.SwaggerDoc()

var csiDriverColumns = []catalog.Column[storagev1.CSIDriver]{
	catalog.NameColumn[storagev1.CSIDriver](),
	{Name: "AttachRequired", Type: "boolean", Description: csiDriverDoc["attachRequired"], Cell: func(d *storagev1.CSIDriver, _ time.Time) any {
		return ptr.Deref(d.Spec.AttachRequired, true)
	}},
	{Name: "PodInfoOnMount", Type: "boolean", Description: csiDriverDoc["podInfoOnMount"], Cell: func(d *storagev1.CSIDriver, _ time.Time) any {
		return ptr.Deref(d.Spec.PodInfoOnMount, false)
	}},
	{Name: "StorageCapacity", Type: "boolean", Description: csiDriverDoc["storageCapacity"], Cell: func(d *storagev1.CSIDriver, _ time.Time) any {
		return ptr.Deref(d.Spec.StorageCapacity, false)
	}},
	{Name: "TokenRequests", Description: csiDriverDoc["tokenRequests"], Cell: func(d *storagev1.CSIDriver, _ time.Time) any {
		if d.Spec.TokenRequests == nil {
			return "<unset>"
		}
		return joined(d.Spec.TokenRequests, func(r storagev1.TokenRequest) string { return r.Audience })
	}},
	{Name: "RequiresRepublish", Type: "boolean", Description: csiDriverDoc["requiresRepublish"], Cell: func(d *storagev1.CSIDriver, _ time.Time) any {
		return ptr.Deref(d.Spec.RequiresRepublish, false)
	}},
	{Name: "Modes", Description: csiDriverDoc["volumeLifecycleModes"], Cell: func(d *storagev1.CSIDriver, _ time.Time) any {
		modes := joined(d.Spec.VolumeLifecycleModes, func(m storagev1.VolumeLifecycleMode) string { return string(m) })
		if modes == "" {
			return "<none>"
		}
		return modes
	}},
	catalog.AgeColumn[storagev1.CSIDriver](),
}

func joined[T any](items []T, text func(T) string) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = text(item)
	}
	return strings.Join(texts, ",")
}
