package storage

import (
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/volume"
)

// CSINode declares the CSI drivers of a node, with their ids of the node.
var CSINode = catalog.Resource[storagev1.CSINode]{
	Group: group, Version: version, Kind: "CSINode", Plural: "csinodes",
	Deletion:       catalog.Deletion[storagev1.CSINode]{ReturnsObject: true},
	Name:           validation.NameIsDNSSubdomain,
	Validate:       validateCSINode,
	ValidateUpdate: validateCSINodeUpdate,
	Status: &catalog.Edit[storagev1.CSINode]{
		PrepareUpdate: func(new, old *storagev1.CSINode) {
			metav1.ResetObjectMetaForStatus(&new.ObjectMeta, &old.ObjectMeta)
			if len(old.Status.StorageHealth) == 0 { // its feature gate is off by default
				new.Status.StorageHealth = nil
			}
		},
		ResetFields: []string{"metadata"},
	},
	Columns: []catalog.Column[storagev1.CSINode]{
		catalog.NameColumn[storagev1.CSINode](),
		{Name: "Drivers", Type: "integer", Description: "Drivers indicates the number of CSI drivers registered on the node",
			Cell: func(n *storagev1.CSINode, _ time.Time) any { return int64(len(n.Spec.Drivers)) }},
		catalog.AgeColumn[storagev1.CSINode](),
	},
	Complete: true,
}

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	at := check.At(field.NewPath("spec"))
	checkNodeDrivers(at, n.Spec.Drivers)
	return at.Errors()
}

// validateCSINodeUpdate allows drivers to be added and removed, but to change nothing except how many volumes they can attach.
func validateCSINodeUpdate(new, old *storagev1.CSINode) field.ErrorList {
	at := check.At(field.NewPath("spec"))
	checkNodeDrivers(at, new.Spec.Drivers)
	for _, was := range old.Spec.Drivers {
		for _, is := range new.Spec.Drivers {
			if was.Name == is.Name {
				was.Allocatable, is.Allocatable = nil, nil
				at.Immutable("drivers", &is, &was)
			}
		}
	}
	return at.Errors()
}

const maxNodeID = 256

func checkNodeDrivers(at *check.Part, drivers []storagev1.CSINodeDriver) {
	names := make(map[string]struct{}, len(drivers))
	for i := range drivers {
		d, at := &drivers[i], at.Item("drivers", i)
		at.Add(volume.ValidateDriverName(d.Name, at.Path("name"))...)
		at.Present("nodeID", d.NodeID != "", "")
		if len(d.NodeID) > maxNodeID {
			at.Invalid("nodeID", d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID))
		}
		if d.Allocatable != nil {
			check.NonNegativeIfSet(at.Child("allocatable"), "count", d.Allocatable.Count)
		}
		if _, taken := names[d.Name]; taken {
			at.Add(field.Duplicate(at.Path("name"), d.Name))
		}
		names[d.Name] = struct{}{}
		checkTopologyKeys(at, d.TopologyKeys)
	}
}

// checkTopologyKeys reports errors at the path of the driver, not of the key, as upstream does.
func checkTopologyKeys(at *check.Part, keys []string) {
	for i, key := range keys {
		at.Present("", key != "", "")
		if slices.Contains(keys[:i], key) {
			at.Add(field.Duplicate(at.Path(), key))
		}
		at.Format("", key, utilvalidation.IsQualifiedName)
	}
}
