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
	// discoverEvery is how often the server is asked whether resources have come or gone that quotas count.
	discoverEvery = 30 * time.Second
	// fillTime is how long a quota waits for a counter to be filled. After that it is counted without.
	fillTime = 30 * time.Second
	// fillCheck is how often a waiting quota looks should nobody tell it.
	fillCheck = time.Second
)

// counters watch the metadata of those resources that some quota counts and that need only be counted. To the runtime they are one
// informer: changes of all resources go to one handler.
type counters struct {
	cache.SharedIndexInformer // nil: nothing but AddEventHandler is called

	client *client.Client
	wanted func() map[schema.GroupResource]bool
	wake   chan struct{} // some quota needs a counter that is not there

	mu      sync.Mutex
	handler cache.ResourceEventHandler
	of      map[schema.GroupResource]*counter
}

type counter struct {
	since    time.Time                 // when a quota asked first
	known    bool                      // the server has been asked about the resource
	version  string                    // that it serves, empty if none
	informer cache.SharedIndexInformer // nil while there is nothing to watch
	stop     context.CancelFunc
}

// filled tells the handler that a resource can be counted now.
type filled struct {
	metav1.ObjectMeta
	resource schema.GroupResource
}

// gone tells the handler of an object that is gone.
type gone struct {
	metav1.Object
	resource schema.GroupResource
}

func newCounters(c *client.Client, wanted func() map[schema.GroupResource]bool) *counters {
	return &counters{client: c, wanted: wanted, wake: make(chan struct{}, 1), of: map[schema.GroupResource]*counter{}}
}

// AddEventHandler sets the handler that is told of all resources.
func (c *counters) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	c.handler = h
	return always{}, nil
}

// always is the registration with something that has nothing to tell at first.
type always struct{}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (always) HasSynced() bool                     { return true }
func (always) HasSyncedChecker() cache.DoneChecker { return always{} }
func (always) Name() string                        { return "counters" }
func (always) Done() <-chan struct{}               { return closed }

// ready returns how long to wait until resources can be counted, 0 if they can.
func (c *counters) ready(resources []schema.GroupResource, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var wait time.Duration
	for _, resource := range resources {
		one := c.of[resource]
		if one == nil {
			one = &counter{since: now}
			c.of[resource] = one
		}
		if !one.known {
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
		if (!one.known || one.informer != nil && !one.informer.HasSynced()) && now.Sub(one.since) < fillTime {
			wait = fillCheck
		}
	}
	return wait
}

// there returns those resources that the server has.
func (c *counters) there(resources []schema.GroupResource) []schema.GroupResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(resources), func(r schema.GroupResource) bool { return c.of[r] == nil || c.of[r].known && c.of[r].informer == nil })
}

// list returns the objects of a resource.
func (c *counters) list(resource schema.GroupResource, namespace string) ([]quota.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.of[resource]
	if one == nil || one.informer == nil || !one.informer.HasSynced() {
		return nil, fmt.Errorf("%s cannot be counted yet", resource)
	}
	return list(one.informer.GetIndexer(), namespace)
}

// run keeps counters for what is wanted until ctx ends.
func (c *counters) run(ctx context.Context, _ controller.Do) {
	if c.client == nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(discoverEvery)
	defer tick.Stop()
	for {
		if wanted := c.wanted(); len(wanted) > 0 || c.any() {
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
	return len(c.of) > 0
}

// keep starts counters for resources that are wanted and there, and stops the others.
func (c *counters) keep(ctx context.Context, wanted map[schema.GroupResource]bool, running *sync.WaitGroup) {
	served, err := c.served()
	if err != nil && len(served) == 0 {
		return // nobody knows: leave things as they are
	}
	for _, resource := range c.adjust(ctx, wanted, served, err == nil, running) {
		c.handler.OnAdd(&filled{resource: resource}, false) // with nothing
	}
}

// adjust does so and returns those resources that have turned out not to be there. served need not be complete.
func (c *counters) adjust(ctx context.Context, wanted map[schema.GroupResource]bool, served map[schema.GroupResource]string, complete bool,
	running *sync.WaitGroup) (missing []schema.GroupResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for resource := range wanted {
		if c.of[resource] == nil {
			c.of[resource] = &counter{since: time.Now()}
		}
	}
	for resource, one := range c.of {
		version := served[resource]
		if version == "" && !complete {
			version = one.version // perhaps it still is
		}
		if one.stop != nil && (!wanted[resource] || version != one.version) {
			one.stop()
			one.version, one.informer, one.stop = "", nil, nil
		}
		switch {
		case !wanted[resource]:
			delete(c.of, resource)
		case version != "" && one.informer == nil:
			c.start(ctx, resource, one, version, running)
			one.known = true
		case version == "" && complete && !one.known:
			one.known = true
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
		if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = lost.Obj
		}
		if object, ok := obj.(metav1.Object); ok {
			c.handler.OnDelete(&gone{object, resource})
		}
	}})
	if err != nil {
		return // only informers that have ended refuse
	}
	running.Go(func() { informer.RunWithContext(ctx) })
	running.Go(func() {
		if cache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
			c.handler.OnAdd(&filled{resource: resource}, false)
		}
	})
}

// served are the resources that quotas can count, by the version that the server prefers. What is returned with an error is not all.
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
