package apiextensions

import (
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog"
)

type definition = apiextensionsv1.CustomResourceDefinition

var CustomResourceDefinition = catalog.Resource[definition]{
	Group: group, Version: "v1", Kind: "CustomResourceDefinition", Plural: "customresourcedefinitions",
	Short: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
	// As kube-apiserver stores definitions, so that it opens the same etcd.
	StorageName:     group + "/customresourcedefinitions",
	StoredAsJSON:    true,
	UnmarshalStored: unmarshalStored,

	AnyFinalizer:   true,
	Name:           validation.NameIsDNSSubdomain,
	Default:        setDefaults,
	PrepareCreate:  func(d *definition, _ catalog.Request) { canonicalize(&d.Spec); recordStorageVersion(d) },
	PrepareUpdate:  func(new, _ *definition) { canonicalize(&new.Spec); recordStorageVersion(new) },
	Changed:        catalog.SpecChanged[definition],
	Validate:       validateCreate,
	ValidateUpdate: validateUpdate,
	Warnings:       warnings,
	Deletion: catalog.Deletion[definition]{
		Finalizing: func(d *definition) bool { return d.DeletionTimestamp == nil },
		Mark:       markTerminating,
	},
	Status:   &catalog.Edit[definition]{ValidateUpdate: validateStatusUpdate},
	Columns:  columns(),
	Complete: true,
}

func setDefaults(d *definition) {
	s := &d.Spec
	if s.Names.Singular == "" {
		s.Names.Singular = strings.ToLower(s.Names.Kind)
	}
	if s.Names.ListKind == "" && s.Names.Kind != "" {
		s.Names.ListKind = s.Names.Kind + "List"
	}
	if s.Conversion == nil {
		s.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	switch w := s.Conversion.Webhook; {
	case w == nil:
	case w.ClientConfig == nil && len(w.ConversionReviewVersions) == 0:
		s.Conversion.Webhook = nil // it says nothing, and upstream's internal form has no room for that
	case w.ClientConfig != nil && w.ClientConfig.Service != nil && w.ClientConfig.Service.Port == nil:
		port := int32(443)
		w.ClientConfig.Service.Port = &port
	}
	if len(d.Status.StoredVersions) == 0 {
		recordStorageVersion(d)
	}
}

// recordStorageVersion adds the storage version to the versions that objects may be stored in.
func recordStorageVersion(d *definition) {
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if !v.Storage {
			continue
		}
		if !slices.Contains(d.Status.StoredVersions, v.Name) {
			// The list may be the old object's: it must not grow in place.
			d.Status.StoredVersions = append(slices.Clip(d.Status.StoredVersions), v.Name)
		}
		return
	}
}

// markTerminating keeps a definition that is deleted until its custom resources are gone: the finalizer is removed by who removed them.
// The mark is upstream's, which is an update of the metadata, without a grace period or a new generation.
func markTerminating(d *definition) {
	d.DeletionGracePeriodSeconds = nil
	if apihelpers.FindCRDCondition(d, apiextensionsv1.Terminating) != nil {
		return
	}
	if d.Generation > 1 {
		d.Generation--
	}
	if !apihelpers.CRDHasFinalizer(d, apiextensionsv1.CustomResourceCleanupFinalizer) {
		d.Finalizers = append(slices.Clip(d.Finalizers), apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	d.Status.Conditions = slices.Clone(d.Status.Conditions)
	setCondition(d, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	}, metav1.Now())
}
