package storage

import (
	"math"
	"time"
	"unicode/utf8"

	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/volume"
)

// VolumeAttachment declares the intent to attach a volume to a node, with its status.
var VolumeAttachment = catalog.Resource[storagev1.VolumeAttachment]{
	Group: group, Version: version, Kind: "VolumeAttachment", Plural: "volumeattachments",
	Deletion: catalog.Deletion[storagev1.VolumeAttachment]{ReturnsObject: true},
	Name:     validation.NameIsDNSSubdomain,
	Default: func(a *storagev1.VolumeAttachment) {
		if spec := a.Spec.Source.InlineVolumeSpec; spec != nil {
			volume.DefaultInlineSpec(spec)
		}
	},
	Validate: func(a *storagev1.VolumeAttachment) field.ErrorList {
		at := check.At(nil)
		checkAttachment(at, a)
		checkAttacher(at.Child("spec"), a.Spec.Attacher)
		return at.Errors()
	},
	ValidateUpdate: validateAttachmentUpdate,
	Status: &catalog.Edit[storagev1.VolumeAttachment]{
		PrepareUpdate: func(new, old *storagev1.VolumeAttachment) {
			metav1.ResetObjectMetaForStatus(&new.ObjectMeta, &old.ObjectMeta)
		},
		ValidateUpdate: validateAttachmentUpdate,
		ResetFields:    []string{"metadata"},
	},
	Columns:  attachmentColumns,
	Complete: true,
}

// checkAttachment validates everything but the attacher.
func checkAttachment(at *check.Part, a *storagev1.VolumeAttachment) {
	spec := at.Child("spec")
	checkAttachmentSource(spec.Child("source"), &a.Spec.Source)
	spec.Format("nodeName", a.Spec.NodeName, isSubdomainName)
	checkAttachmentStatus(at.Child("status"), &a.Status)
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		at.Format("spec.source.persistentVolumeName", *name, isSubdomainName)
	}
}

func isSubdomainName(name string) []string { return validation.NameIsDNSSubdomain(name, false) }

func checkAttacher(at *check.Part, name string) {
	if name == "" {
		at.Required("attacher", "")
		return
	}
	at.Format("attacher", name, content.IsDNS1123SubdomainCaseless)
	if utf8.RuneCountInString(name) > 63 {
		at.Add(field.TooLongCharacters(at.Path("attacher"), "", 63))
	}
}

func checkAttachmentSource(at *check.Part, s *storagev1.VolumeAttachmentSource) {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch name, inline := s.PersistentVolumeName, s.InlineVolumeSpec; {
	case name == nil && inline == nil:
		at.Required("", one)
	case name != nil && inline != nil:
		at.Forbidden("", one)
	case name != nil:
		at.Present("persistentVolumeName", *name != "", "must specify non empty persistentVolumeName")
	default:
		at.Add(volume.ValidateInlineSpec(inline, at.Path("inlineVolumeSpec"))...)
	}
}

const (
	maxAttachmentMetadata = 256 << 10
	maxErrorMessage       = 1024
)

func checkAttachmentStatus(at *check.Part, s *storagev1.VolumeAttachmentStatus) {
	size := 0
	for key, value := range s.AttachmentMetadata {
		size += len(key) + len(value)
	}
	if size > maxAttachmentMetadata {
		at.Add(field.TooLong(at.Path("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	checkVolumeError(at.Child("attachError"), s.AttachError)
	checkVolumeError(at.Child("detachError"), s.DetachError)
}

func checkVolumeError(at *check.Part, e *storagev1.VolumeError) {
	if e == nil {
		return
	}
	if len(e.Message) > maxErrorMessage {
		at.Add(field.TooLong(at.Path("message"), "", maxErrorMessage))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		at.Invalid("errorCode", *e.ErrorCode, utilvalidation.InclusiveRangeError(0, math.MaxInt32))
	}
}

func validateAttachmentUpdate(new, old *storagev1.VolumeAttachment) field.ErrorList {
	at := check.At(nil)
	if !apiequality.Semantic.DeepEqual(new.Spec, old.Spec) {
		at.Add(volume.ValidateDriverName(new.Spec.Attacher, field.NewPath("spec", "attacher"))...)
		checkAttachment(at, new)
		immutable(at, "spec")
		return at.Errors()
	}
	checkAttachment(at, new)
	return at.Errors()
}

var attachmentSpecDoc = storagev1.VolumeAttachmentSpec{}.SwaggerDoc()

var attachmentColumns = []catalog.Column[storagev1.VolumeAttachment]{
	catalog.NameColumn[storagev1.VolumeAttachment](),
	{Name: "Attacher", Format: "name", Description: attachmentSpecDoc["attacher"], Cell: func(a *storagev1.VolumeAttachment, _ time.Time) any {
		return a.Spec.Attacher
	}},
	{Name: "PV", Description: storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"], Cell: func(a *storagev1.VolumeAttachment, _ time.Time) any {
		return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
	}},
	{Name: "Node", Description: attachmentSpecDoc["nodeName"], Cell: func(a *storagev1.VolumeAttachment, _ time.Time) any {
		return a.Spec.NodeName
	}},
	{Name: "Attached", Type: "boolean", Description: storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"], Cell: func(a *storagev1.VolumeAttachment, _ time.Time) any {
		return a.Status.Attached
	}},
	catalog.AgeColumn[storagev1.VolumeAttachment](),
}
