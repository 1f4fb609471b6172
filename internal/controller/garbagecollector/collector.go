package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"skiff/internal/client"
	"skiff/internal/controller"
)

const (
	// workers is how many objects are reconciled at a time.
	workers = 20
	// rediscover is how often the collector asks which resources the API server has at least, and how long it waits for the informer of a new one to
	// sync.
	rediscover = 30 * time.Second
	// afterDefinition is how long after a change of a definition or an APIService the collector asks: many change together, and discovery follows them.
	afterDefinition = time.Second
	// retryDiscovery is how soon it asks again if discovery has not succeeded yet.
	retryDiscovery = time.Second
)

// definers are the resources whose objects decide which resources there are.
var definers = []schema.GroupResource{{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, {Group: "apiregistration.k8s.io", Resource: "apiservices"}}

// New returns the loop. It reconciles uids, not keys, and has a queue of its own.
func New(deps controller.Deps) controller.Loop {
	return controller.Loop{
		Name:           "garbage-collector-controller",
		ServiceAccount: "generic-garbage-collector",
		Workers:        1,
		Run: func(ctx context.Context, do controller.Do) {
			newCollector(deps).run(ctx, do)
		},
	}
}

// collector keeps the graph up to date and acts on it.
type collector struct {
	client     *client.Client
	log        *slog.Logger
	discover   func() (resources, error)
	rediscover time.Duration
	// queue holds the uids to reconcile, each at most once, so the graph bounds it.
	queue workqueue.TypedRateLimitingInterface[types.UID]

	mu        sync.Mutex
	graph     *graph
	allSynced bool // all objects are in the graph, as far as is known

	monitors map[schema.GroupVersionResource]*monitor
	defined  chan struct{} // has a value if an object of definers has changed since discovery
	running  sync.WaitGroup
}

// monitor feeds the objects of one resource into the graph.
type monitor struct {
	kind   *kind
	stop   context.CancelFunc
	synced <-chan struct{} // closed when the graph has all objects of the informer's first list
}

func newCollector(deps controller.Deps) *collector {
	queue := controller.NewQueue[types.UID](deps.Metrics, "garbage_collector_attempt_to_delete")
	c := deps.Client
	return &collector{client: c, log: deps.Log, rediscover: rediscover, queue: queue, graph: newGraph(queue.Add), monitors: map[schema.GroupVersionResource]*monitor{},
		defined:  make(chan struct{}, 1),
		discover: func() (resources, error) { return discover(c.Kubernetes().Discovery()) }}
}

func (c *collector) run(ctx context.Context, do controller.Do) {
	defer c.running.Wait()
	defer c.queue.ShutDown()
	for !c.syncMonitors(ctx) {
		select {
		case <-time.After(retryDiscovery):
		case <-ctx.Done():
			return
		}
	}
	for range workers {
		c.running.Go(func() {
			for c.processNext(ctx, do) {
			}
		})
	}
	ticker := time.NewTicker(c.rediscover)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.defined:
			select {
			case <-time.After(afterDefinition):
			case <-ctx.Done():
				return
			}
			select {
			case <-c.defined:
			default:
			}
		case <-ctx.Done():
			return
		}
		c.syncMonitors(ctx)
	}
}

// announceDefinition has the resources discovered soon.
func (c *collector) announceDefinition() {
	select {
	case c.defined <- struct{}{}:
	default:
	}
}

// syncMonitors discovers the resources of the API server, starts monitors of new ones, stops those of removed ones, and waits until all objects
// are in the graph. It reports whether discovery succeeded.
func (c *collector) syncMonitors(ctx context.Context) (discovered bool) {
	found, err := c.discover()
	if err != nil {
		c.log.Warn("garbage collector failed to discover resources; retrying", "error", err)
		return false
	}
	found.keep(c.graph.served) // no other goroutine writes it
	for resource, f := range c.monitors {
		if k := found.monitored[resource]; k == nil && !found.failed[resource.GroupVersion()] || k != nil && *k != *f.kind {
			f.stop()
			delete(c.monitors, resource)
			c.locked(func() { c.graph.removeKind(f.kind) })
		}
	}
	for resource, k := range found.monitored {
		if c.monitors[resource] == nil {
			c.locked(func() { c.allSynced = false })
			c.monitors[resource] = c.startMonitor(ctx, k)
		}
	}
	c.waitForSync(ctx)
	if !maps.EqualFunc(found.served, c.graph.served, func(a, b *kind) bool { return *a == *b }) {
		c.locked(func() { c.graph.serve(found.served) })
	}
	return true
}

// waitForSync waits until all objects of all resources are in the graph, at most c.rediscover: a resource that does not work must not stop the
// collector.
func (c *collector) waitForSync(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, c.rediscover)
	defer cancel()
	for resource, f := range c.monitors {
		select {
		case <-f.synced:
		case <-waiting.Done():
			if ctx.Err() != nil {
				return
			}
			c.log.Warn("garbage collector timed out waiting for a resource to sync; going on without", "resource", resource.String())
		}
	}
	c.locked(func() { c.allSynced = true })
}

func (c *collector) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// startMonitor feeds the objects of a resource into the graph.
func (c *collector) startMonitor(ctx context.Context, k *kind) *monitor {
	informer := c.client.MetadataInformers(client.InformerOptions{}).ForResource(k.resource).Informer()
	ctx, stop := context.WithCancel(ctx)
	if err := informer.SetTransform(trim); err != nil {
		panic("failed to set the transform of a new informer: " + err.Error())
	}
	// Nothing may enter the graph after the kind has been removed from it.
	change := func(change func(*kind, *metav1.PartialObjectMetadata), obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			c.locked(func() {
				if ctx.Err() == nil {
					change(k, m)
				}
			})
		}
	}
	defines := slices.Contains(definers, k.resource.GroupResource())
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { change(c.graph.observe, obj) },
		UpdateFunc: func(before, after any) {
			if defines { // a new one is served when it is updated to say so
				c.announceDefinition()
			}
			if before.(metav1.Object).GetUID() != after.(metav1.Object).GetUID() {
				change(c.graph.deleted, before) // the object was replaced by another of its name between two lists
			}
			change(c.graph.observe, after)
		},
		DeleteFunc: func(obj any) {
			if defines {
				c.announceDefinition()
			}
			change(c.graph.deleted, obj)
		},
	})
	if err != nil {
		panic("failed to add a handler to a new informer: " + err.Error())
	}
	c.running.Go(func() { informer.RunWithContext(ctx) })
	return &monitor{kind: k, stop: stop, synced: registered.HasSyncedChecker().Done()}
}

// trim returns the part of an object's metadata that the graph needs. Its argument is shared and is not changed.
func trim(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers}}, nil
}

// processNext reconciles the next uid, and reports whether there may be more.
func (c *collector) processNext(ctx context.Context, do controller.Do) bool {
	uid, down := c.queue.Get()
	if down {
		return false
	}
	defer c.queue.Done(uid)
	requeue, err := c.reconcile(ctx, do, uid)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil || requeue:
		c.queue.AddRateLimited(uid)
	default:
		c.queue.Forget(uid)
	}
	return true
}

// reconcile decides what to do about a node and carries the decision out.
func (c *collector) reconcile(ctx context.Context, do controller.Do, uid types.UID) (requeue bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("garbage collector panicked while reconciling", "uid", uid, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	var p plan
	c.locked(func() { p = c.graph.decide(uid, c.allSynced) })
	if p.empty() {
		return false, nil
	}
	for _, because := range p.because {
		ctx = client.Because(ctx, because)
	}
	if err = errors.Join(do(ctx, p.actions()...), do(ctx, p.questions(c.kind, c.record)...)); err != nil {
		c.log.Debug("garbage collector failed to reconcile; requeued with back-off", "uid", uid, "object", p.String(), "error", err)
	}
	return p.requeue, err
}

// kind returns a served kind, or nil.
func (c *collector) kind(by kindName) (k *kind) {
	c.locked(func() { k = c.graph.served[by] })
	return k
}

// record notes the API server's answer about a name.
func (c *collector) record(uid types.UID, by name, said answer) {
	c.locked(func() { c.graph.verified(uid, by, said) })
}
