package storagemigration

import (
	"strings"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

type migration = storagemigrationv1.StorageVersionMigration

var StorageVersionMigration = catalog.Resource[migration]{
	Group: group, Version: "v1", Kind: "StorageVersionMigration", Plural: "storageversionmigrations", StorageVersion: "v1beta1",
	Name:     validation.NameIsDNSSubdomain,
	Validate: func(m *migration) field.ErrorList { return validate(m).Errors() },
	ValidateUpdate: func(new, old *migration) field.ErrorList {
		root := validate(new)
		root.Child("metadata").GeneratedName(new, validation.NameIsDNSSubdomain)
		root.Immutable("spec", new.Spec, old.Spec)
		return root.Errors()
	},
	Status: &catalog.Edit[migration]{
		PrepareUpdate:  func(new, old *migration) { metav1.ResetObjectMetaForStatus(new, old) },
		ResetFields:    []string{"metadata"},
		ValidateUpdate: validateStatus,
	},
	Columns:  columns(),
	Complete: true,
}

func validate(m *migration) *check.Part {
	root := check.At(nil)
	p, r := root.Child("spec").Child("resource"), &m.Spec.Resource
	if r.Resource == "" {
		p.Required("resource", "resource is required to be set")
	} else if msgs := utilvalidation.IsDNS1035Label(r.Resource); len(msgs) > 0 {
		p.Invalid("resource", r.Resource, strings.Join(msgs, ","))
	}
	if r.Group != "" {
		if msgs := utilvalidation.IsDNS1123Subdomain(r.Group); len(msgs) > 0 {
			p.Invalid("group", r.Group, strings.Join(msgs, ","))
		}
	}
	return root
}

// validateStatus lets a migration set its resource version once, and end once, in success or in failure.
func validateStatus(new, old *migration) field.ErrorList {
	root := check.At(nil)
	p, version, before := root.Child("status"), new.Status.ResourceVersion, old.Status.ResourceVersion
	if version != "" {
		if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
			p.Invalid("resourceVersion", version, err.Error())
		}
	}
	conditions := new.Status.Conditions
	p.Add(metav1validation.ValidateConditions(conditions, p.Path("conditions"))...)
	if before != "" && before != version {
		p.Invalid("resourceVersion", version, "field is immutable")
	}
	succeeded, failed := is(new, storagemigrationv1.MigrationSucceeded), is(new, storagemigrationv1.MigrationFailed)
	if succeeded && failed {
		p.Invalid("conditions", conditions, "Both success and failed conditions cannot be true at the same time")
	}
	if is(old, storagemigrationv1.MigrationSucceeded) && !succeeded {
		p.Invalid("conditions", conditions, "Success condition cannot be set to false once it is true")
	}
	if is(old, storagemigrationv1.MigrationFailed) && !failed {
		p.Invalid("conditions", conditions, "Failed condition cannot be set to false once it is true")
	}
	return root.Errors()
}

func is(m *migration, t storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

func columns() []catalog.Column[migration] {
	name := catalog.NameColumn[migration]()
	name.Format = "" // upstream says no more of it
	return []catalog.Column[migration]{
		name,
		{Name: "Resource", Description: "GroupResource to migrate", Cell: func(m *migration, _ time.Time) any { return m.Spec.Resource.String() }},
		{Name: "Status", Description: "Status of the migration", Cell: func(m *migration, _ time.Time) any { return state(m) }},
	}
}

// state returns the last condition that is true, of those that say how far a migration is.
func state(m *migration) string {
	state := "Unknown"
	for i := range m.Status.Conditions {
		c := &m.Status.Conditions[i]
		switch storagemigrationv1.MigrationConditionType(c.Type) {
		case storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationFailed, storagemigrationv1.MigrationSucceeded:
			if c.Status == metav1.ConditionTrue {
				state = c.Type
			}
		}
	}
	return state
}
