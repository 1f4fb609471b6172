package storageversionmigrator

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// pageSize is how many objects are listed, and held, at a time.
const pageSize = 500

// progress is how far a migration got.
type progress struct {
	served      bool // the resource is served
	outdated    bool // the API server stores objects in another version than the definition of the resource says; it will not for long
	total, left int  // all objects, and those that are not migrated yet
	err         error
}

// migrate writes all objects that are not newer than the migration's resourceVersion. The action fails if the objects cannot be listed; the error of a
// write is in the result.
func migrate(m *migration, result *progress) controller.Action {
	return controller.Call(fmt.Sprintf("migrate %s up to resourceVersion %s", m.Spec.Resource.String(), m.Status.ResourceVersion), func(ctx context.Context, c *client.Client) error {
		found, err := discover(c, m.Spec.Resource)
		if err != nil || !found.served() {
			return err
		}
		result.served = true
		if result.outdated, err = outdated(ctx, c, found); err != nil || result.outdated {
			return err
		}
		return pages(ctx, c, found, m.Status.ResourceVersion, result)
	})
}

// pages migrates the objects of one page after the other.
func pages(ctx context.Context, c *client.Client, found target, upTo string, result *progress) error {
	api := c.Metadata().Resource(found.resource)
	options := metav1.ListOptions{Limit: pageSize}
	for seen := 0; ; {
		list, err := api.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s to migrate: %w", found.resource.GroupResource(), err)
		}
		seen += len(list.Items)
		result.total = seen
		if list.RemainingItemCount != nil {
			result.total += int(*list.RemainingItemCount)
		}
		result.left = result.total - seen + len(list.Items)
		for i := range list.Items {
			if result.err = object(ctx, c, found, &list.Items[i], upTo); result.err != nil {
				return ctx.Err()
			}
			result.left--
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// object writes an object unless it is newer than a resourceVersion. A conflict means that it has just been written, deleted, or created anew.
func object(ctx context.Context, c *client.Client, found target, o *metav1.PartialObjectMetadata, upTo string) error {
	order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, upTo)
	if err != nil || order > 0 {
		return err
	}
	patch, err := json.Marshal(metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: found.resource.GroupVersion().String(), Kind: found.kind},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: o.ResourceVersion}})
	if err != nil {
		return err
	}
	_, err = c.Metadata().Resource(found.resource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: loopName})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
