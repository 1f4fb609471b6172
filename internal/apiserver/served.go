package apiserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/crd"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/custom"
)

// customResources serves the resources of definitions beside the built-in ones.
type customResources struct {
	server  *Server
	builtin *verbs.Served

	mu        sync.Mutex
	served    map[*custom.Resource]*servedResource
	order     []*custom.Resource         // in the order in which they were first served
	described map[string]map[string]bool // the paths of OpenAPI documents, by group
	replaced  []*cache.Cache             // by others of the same objects; requests may still read them
}

var _ crd.Host = (*customResources)(nil)

// servedResource is a custom resource that is served.
type servedResource struct {
	cache     *cache.Cache
	fields    []string // by which the cache's objects can be selected
	since     int64    // see verbs.Endpoint.Since
	creations creations
	converts  bool // whether these fields are of one version only
	stored    *registry.Registry
	infos     []*catalog.Info
	endpoints map[schema.GroupVersionResource]*verbs.Endpoint
}

func newCustomResources(s *Server) *customResources {
	return &customResources{server: s, builtin: s.api.Served(), served: map[*custom.Resource]*servedResource{}, described: map[string]map[string]bool{}}
}

// Overlaps reports whether a built-in resource has the group and the plural name of a definition.
func (c *customResources) Overlaps(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(c.builtin.Infos, func(info *catalog.Info) bool {
		return info.GVR.Group == crd.Spec.Group && info.GVR.Resource == crd.Spec.Names.Plural
	})
}

// Serve serves resources, or serves them as their definitions say now.
func (c *customResources) Serve(ctx context.Context, resources ...*custom.Resource) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.addCaches(ctx, resources); err != nil {
		return err
	}
	groups := map[string]bool{}
	for _, r := range resources {
		one := c.served[r]
		one.infos = r.Infos()
		one.endpoints = c.server.endpoints(one.infos)
		for _, end := range one.endpoints {
			end.Since = one.since
			end.Registry.AddHooks(one.creations.hooks(refuseCreation(end.Info)))
		}
		if r.Definition().DeletionTimestamp != nil {
			one.creations.close()
		}
		one.stored = registry.New(r.StoredInfo(), c.server.registryOptions())
		groups[r.Definition().Spec.Group] = true
	}
	c.replace()
	for group := range groups {
		c.describe(group)
	}
	return c.dropReplaced(ctx)
}

// dropReplaced ends the caches that others have taken the place of, once they have all that was written while they were served: so requests that began
// before that read nothing older.
func (c *customResources) dropReplaced(ctx context.Context) error {
	if len(c.replaced) == 0 {
		return nil
	}
	if err := c.server.feed.Fresh(ctx); err != nil {
		return err
	}
	if err := c.server.feed.Remove(ctx, c.replaced...); err != nil {
		return err
	}
	c.replaced = nil
	return nil
}

// addCaches adds caches for the resources that have none, or none that holds the fields by which objects can be selected now.
func (c *customResources) addCaches(ctx context.Context, resources []*custom.Resource) error {
	var missing []*custom.Resource
	var kinds []cache.Kind
	for _, r := range resources {
		if one := c.served[r]; one == nil || !slices.Equal(one.fields, r.SelectableFields()) || len(one.fields) > 0 && one.converts != r.Converts() {
			missing = append(missing, r)
			kinds = append(kinds, registry.Kind(r.StoredInfo(), c.server.registryOptions()))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	added, err := c.server.feed.Add(ctx, kinds...)
	if err != nil {
		return fmt.Errorf("failed to read the objects of custom resources: %w", err)
	}
	for i, r := range missing {
		if c.served[r] == nil {
			c.served[r] = &servedResource{}
			c.order = append(c.order, r)
			if c.server.api.Ready.Load() { // else the resource was served before the server was started
				c.served[r].since = added[i].Snapshot().Revision
			}
		} else {
			c.replaced = append(c.replaced, c.served[r].cache)
		}
		c.served[r].cache, c.served[r].fields, c.served[r].converts = added[i], r.SelectableFields(), r.Converts()
	}
	return nil
}

// Withdraw ends the service of a resource, and its watches.
func (c *customResources) Withdraw(ctx context.Context, r *custom.Resource) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.served[r]
	if one == nil {
		return nil
	}
	one.creations.close()
	delete(c.served, r)
	c.order = slices.DeleteFunc(c.order, func(other *custom.Resource) bool { return other == r })
	c.replace()
	c.describe(r.Definition().Spec.Group)
	return c.server.feed.Remove(ctx, one.cache)
}

// describeAgain describes what is served of a group in OpenAPI again.
func (c *customResources) describeAgain(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.describe(group)
}

// replace makes what is served now the API's.
func (c *customResources) replace() {
	next := &verbs.Served{Infos: slices.Clone(c.builtin.Infos), Endpoints: maps.Clone(c.builtin.Endpoints)}
	for _, r := range c.order {
		one := c.served[r]
		next.Infos = append(next.Infos, one.infos...)
		maps.Copy(next.Endpoints, one.endpoints)
	}
	c.server.publish(next)
}

// deleteWorkers is how many objects of a definition that is deleted are deleted at once.
const deleteWorkers = 8

// DeleteObjects deletes the objects of a resource, and returns how many remain because finalizers hold them or because they are still being created.
func (c *customResources) DeleteObjects(ctx context.Context, r *custom.Resource) (remaining int, err error) {
	c.mu.Lock()
	one := c.served[r]
	c.mu.Unlock()
	if one == nil {
		return 0, fmt.Errorf("the resource is not served")
	}
	creating := one.creations.close() // before the objects are listed: of those that ended, the list has all
	if err := c.server.feed.Fresh(ctx); err != nil {
		return 0, err
	}
	var held atomic.Int64
	held.Store(int64(creating))
	group, deleting := errgroup.WithContext(ctx)
	group.SetLimit(deleteWorkers)
	one.cache.Snapshot().Ascend("", "", func(it *cache.Item) bool {
		group.Go(func() error {
			uid := types.UID(it.UID)
			_, removed, err := one.stored.Delete(deleting, it.Namespace, it.Name, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
				loopbackWrite())
			if err == nil && !removed {
				held.Add(1)
			}
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // removed, or replaced by another object of the name, which the next call deletes
				return nil
			}
			return err
		})
		return deleting.Err() == nil
	})
	err = group.Wait()
	return int(held.Load()), err
}
