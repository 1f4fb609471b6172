package crd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"skiff/internal/catalog"
)

// checkObjectsAfter is the time between two looks at the objects of a definition that wait for their finalizers.
const checkObjectsAfter = 200 * time.Millisecond

// finalize removes the objects of a definition that is being deleted, and then the finalizer that keeps the definition. It asks to be called again while
// objects remain.
func (d *Definitions) finalize(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (after time.Duration, err error) {
	if !apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return 0, nil
	}
	r := d.served[crd.Name]
	if r == nil {
		return 0, d.end(ctx, crd, "NeverEstablished", "resource was never established")
	}
	if err := d.terminating(ctx, crd, apiextensionsv1.ConditionTrue, "InstanceDeletionInProgress", "CustomResource deletion is in progress"); err != nil {
		return 0, err
	}
	remaining, err := d.host.DeleteObjects(ctx, r)
	switch {
	case err != nil:
		if failure := d.terminating(ctx, crd, apiextensionsv1.ConditionTrue, "InstanceDeletionFailed", fmt.Sprintf("could not issue all deletes: %v", err)); failure != nil {
			return 0, failure
		}
		return 0, err
	case remaining > 0:
		return checkObjectsAfter, nil
	}
	return 0, d.end(ctx, crd, "InstanceDeletionCompleted", "removed all instances")
}

// finalizeOverlapping lets a definition go that a built-in resource stands for: its objects are not the definition's.
func (d *Definitions) finalizeOverlapping(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if crd.DeletionTimestamp == nil || !apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return nil
	}
	return d.end(ctx, crd, "OverlappingBuiltInResource", "instances overlap with built-in resources in storage")
}

// end says in the status that no objects remain, and removes the finalizer.
func (d *Definitions) end(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, reason, message string) error {
	if err := d.terminating(ctx, crd, apiextensionsv1.ConditionFalse, reason, message); err != nil {
		return err
	}
	return ignoreGone(d.objects.Update(ctx, definitionResource, "", "", crd.Name, func(obj catalog.Object) error {
		newest := obj.(*apiextensionsv1.CustomResourceDefinition)
		if newest.UID != crd.UID {
			return errReplaced
		}
		newest.Finalizers = slices.DeleteFunc(slices.Clone(newest.Finalizers), func(f string) bool { return f == apiextensionsv1.CustomResourceCleanupFinalizer })
		return nil
	}))
}

// terminating sets the condition Terminating, if it says something else.
func (d *Definitions) terminating(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, status apiextensionsv1.ConditionStatus, reason, message string) error {
	condition := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Terminating, Status: status, Reason: reason, Message: message}
	if known := d.get(crd.Name); known != nil && known.UID == crd.UID &&
		apihelpers.IsCRDConditionEquivalent(&condition, apihelpers.FindCRDCondition(known, apiextensionsv1.Terminating)) {
		return nil
	}
	return d.writeStatus(ctx, crd, func(newest *apiextensionsv1.CustomResourceDefinition) { apihelpers.SetCRDCondition(newest, condition) })
}
