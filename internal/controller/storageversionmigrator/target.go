package storageversionmigrator

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// verbsRequired are the verbs that a resource must have for its objects to be migrated.
var verbsRequired = []string{"update", "patch", "list"}

// noNamespace is the name of a namespace that cannot exist: listing it returns the newest resourceVersion and no objects.
const noNamespace = "@fake:svm_ns!"

// target is what discovery says of the resource to migrate.
type target struct {
	resource   schema.GroupVersionResource // in the preferred version; zero if it is not served
	kind       string
	namespaced bool
	verbs      metav1.Verbs
	storage    string // names the version in which objects are stored, if that is served

	resourceVersion string // up to which objects are migrated
	invalid         error  // says why resourceVersion is not one
}

func (t *target) served() bool { return t.resource.Resource != "" }

func (t *target) migratable() bool {
	return !slices.ContainsFunc(verbsRequired, func(verb string) bool { return !slices.Contains(t.verbs, verb) })
}

// lookup finds the resource of a migration and its newest resourceVersion.
func lookup(m *migration, found *target) controller.Action {
	return controller.Call(fmt.Sprintf("look up resource %s", m.Spec.Resource.String()), func(ctx context.Context, c *client.Client) (err error) {
		if *found, err = discover(c, m.Spec.Resource); err != nil || !found.served() || !found.migratable() {
			return err
		}
		namespace := ""
		if found.namespaced {
			namespace = noNamespace
		}
		list, err := c.Metadata().Resource(found.resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("error getting latest resourceVersion for %s: %w", found.resource.String(), err)
		}
		found.resourceVersion = list.ResourceVersion
		_, found.invalid = resourceversion.CompareResourceVersion(list.ResourceVersion, list.ResourceVersion)
		return nil
	})
}

// discover finds a resource in the version that its group prefers, or else in the first that has it.
func discover(c *client.Client, resource metav1.GroupResource) (target, error) {
	versions, err := versionsOf(c, resource.Group)
	if err != nil {
		return target{}, err
	}
	for _, gv := range versions {
		list, err := c.Kubernetes().Discovery().ServerResourcesForGroupVersion(gv)
		if apierrors.IsNotFound(err) {
			continue // it has just gone
		}
		if err != nil {
			return target{}, err
		}
		for _, r := range list.APIResources {
			if r.Name == resource.Resource {
				parsed, err := schema.ParseGroupVersion(gv)
				return target{resource: parsed.WithResource(r.Name), kind: r.Kind, namespaced: r.Namespaced, verbs: r.Verbs, storage: r.StorageVersionHash}, err
			}
		}
	}
	return target{}, nil
}

// versionsOf returns the group versions of a group, the preferred one first.
func versionsOf(c *client.Client, group string) ([]string, error) {
	groups, err := c.Kubernetes().Discovery().ServerGroups()
	if err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		if g.Name != group {
			continue
		}
		versions := []string{g.PreferredVersion.GroupVersion}
		for _, v := range g.Versions {
			if v.GroupVersion != g.PreferredVersion.GroupVersion {
				versions = append(versions, v.GroupVersion)
			}
		}
		return versions, nil
	}
	return nil, nil
}
