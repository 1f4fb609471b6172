package resourcequota

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/quota"
)

const (
	// discoverEvery is how often the API server is asked for resources that quotas count.
	discoverEvery = 30 * time.Second
	// syncTimeout is how long a quota waits for a counter to sync. After that it is counted without.
	syncTimeout = 30 * time.Second
	// syncCheck is how often a waiting quota is requeued in case it is not notified.
	syncCheck = time.Second
)

// counters watches the metadata of resources that a quota counts by number only. To the runtime it is one informer: changes of all resources go
// to one handler.
type counters struct {
	cache.SharedIndexInformer // nil: only AddEventHandler is called

	client          *client.Client
	wantedResources func() map[schema.GroupResource]bool
	wake            chan struct{} // signalled when a quota needs a counter that does not exist

	mu         sync.Mutex
	handler    cache.ResourceEventHandler
	byResource map[schema.GroupResource]*counter
}

type counter struct {
	since      time.Time                 // when a quota first asked for it
	discovered bool                      // the API server has been asked for the resource
	version    string                    // the served version, empty if the resource is not served
	informer   cache.SharedIndexInformer // nil while the resource is not watched
	stop       context.CancelFunc
}

// counterSynced tells the handler that a resource can be counted now.
type counterSynced struct {
	metav1.ObjectMeta
	resource schema.GroupResource
}

// countedDeleted tells the handler that a counted object was deleted.
type countedDeleted struct {
	metav1.Object
	resource schema.GroupResource
}

func newCounters(c *client.Client, wanted func() map[schema.GroupResource]bool) *counters {
	return &counters{client: c, wantedResources: wanted, wake: make(chan struct{}, 1), byResource: map[schema.GroupResource]*counter{}}
}

// AddEventHandler sets the handler that gets the events of all resources.
func (c *counters) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	c.handler = h
	return alwaysSynced{}, nil
}

// alwaysSynced is a handler registration that has synced from the start.
type alwaysSynced struct{}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (alwaysSynced) HasSynced() bool                     { return true }
func (alwaysSynced) HasSyncedChecker() cache.DoneChecker { return alwaysSynced{} }
func (alwaysSynced) Name() string                        { return "counters" }
func (alwaysSynced) Done() <-chan struct{}               { return closed }

// ready returns how long to wait until resources can be counted, 0 if they can.
func (c *counters) ready(resources []schema.GroupResource, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var wait time.Duration
	for _, resource := range resources {
		one := c.byResource[resource]
		if one == nil {
			one = &counter{since: now}
			c.byResource[resource] = one
		}
		if !one.discovered {
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
		if (!one.discovered || one.informer != nil && !one.informer.HasSynced()) && now.Sub(one.since) < syncTimeout {
			wait = syncCheck
		}
	}
	return wait
}

// servedOnly returns those resources that the API server serves.
func (c *counters) servedOnly(resources []schema.GroupResource) []schema.GroupResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(resources), func(r schema.GroupResource) bool {
		return c.byResource[r] == nil || c.byResource[r].discovered && c.byResource[r].informer == nil
	})
}

// list returns the objects of a resource in a namespace.
func (c *counters) list(resource schema.GroupResource, namespace string) ([]quota.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byResource[resource]
	if one == nil || one.informer == nil || !one.informer.HasSynced() {
		return nil, fmt.Errorf("%s cannot be counted: its informer has not synced", resource)
	}
	return list(one.informer.GetIndexer(), namespace)
}

// run keeps counters for the wanted resources until ctx ends.
func (c *counters) run(ctx context.Context, _ controller.Do) {
	if c.client == nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(discoverEvery)
	defer tick.Stop()
	for {
		if wanted := c.wantedResources(); len(wanted) > 0 || c.any() {
			c.keep(ctx, wanted, &running)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-tick.C:
		}
	}
}

func (c *counters) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byResource) > 0
}

// keep starts counters for wanted resources that are served, and stops the others.
func (c *counters) keep(ctx context.Context, wanted map[schema.GroupResource]bool, running *sync.WaitGroup) {
	served, err := c.served()
	if err != nil && len(served) == 0 {
		return // discovery failed: leave the counters as they are
	}
	for _, resource := range c.adjust(ctx, wanted, served, err == nil, running) {
		c.handler.OnAdd(&counterSynced{resource: resource}, false) // without objects
	}
}

// adjust starts and stops counters, and returns resources that turned out not to be served. served is incomplete unless complete is set.
func (c *counters) adjust(ctx context.Context, wanted map[schema.GroupResource]bool, served map[schema.GroupResource]string, complete bool,
	running *sync.WaitGroup) (missing []schema.GroupResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for resource := range wanted {
		if c.byResource[resource] == nil {
			c.byResource[resource] = &counter{since: time.Now()}
		}
	}
	for resource, one := range c.byResource {
		version := served[resource]
		if version == "" && !complete {
			version = one.version // its discovery may have failed
		}
		if one.stop != nil && (!wanted[resource] || version != one.version) {
			one.stop()
			one.version, one.informer, one.stop = "", nil, nil
		}
		switch {
		case !wanted[resource]:
			delete(c.byResource, resource)
		case version != "" && one.informer == nil:
			c.start(ctx, resource, one, version, running)
			one.discovered = true
		case version == "" && complete && !one.discovered:
			one.discovered = true
			missing = append(missing, resource)
		}
	}
	return missing
}

// start watches a resource.
func (c *counters) start(ctx context.Context, resource schema.GroupResource, one *counter, version string, running *sync.WaitGroup) {
	ctx, one.stop = context.WithCancel(ctx)
	one.version, one.since = version, time.Now()
	one.informer = c.client.MetadataInformers(client.InformerOptions{}).ForResource(resource.WithVersion(version)).Informer()
	informer := one.informer
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if object, ok := obj.(metav1.Object); ok {
			c.handler.OnDelete(&countedDeleted{object, resource})
		}
	}})
	if err != nil {
		return // only a stopped informer returns an error
	}
	running.Go(func() { informer.RunWithContext(ctx) })
	running.Go(func() {
		if cache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
			c.handler.OnAdd(&counterSynced{resource: resource}, false)
		}
	})
}

// served returns the resources that quotas can count, with their preferred versions. With an error it is incomplete.
func (c *counters) served() (map[schema.GroupResource]string, error) {
	lists, err := c.client.Kubernetes().Discovery().ServerPreferredNamespacedResources()
	out := map[schema.GroupResource]string{}
	for _, l := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"create", "list", "watch", "delete"}}, lists) {
		gv, parseErr := schema.ParseGroupVersion(l.GroupVersion)
		if parseErr != nil {
			continue
		}
		for i := range l.APIResources {
			out[schema.GroupResource{Group: gv.Group, Resource: l.APIResources[i].Name}] = gv.Version
		}
	}
	return out, err
}
