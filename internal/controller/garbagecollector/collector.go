package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
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
	// workers is how many objects are dealt with at a time.
	workers = 20
	// rediscover is how often the collector asks whether there are other resources than before, and for how long it waits to see all
	// objects of a new one.
	rediscover = 30 * time.Second
	// retryDiscovery is how soon it asks again if it has not been told of any resource yet.
	retryDiscovery = time.Second
)

// New returns the loop. It decides about uids, not keys, and has a queue of its own.
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

// collector is the graph, and what keeps it up to date and acts upon it.
type collector struct {
	client     *client.Client
	log        *slog.Logger
	discover   func() (resources, error)
	rediscover time.Duration
	// queue has the uids that are to be looked at. It has each at most once, so the graph bounds it.
	queue workqueue.TypedRateLimitingInterface[types.UID]

	mu      sync.Mutex
	graph   *graph
	settled bool // all objects are in the graph, for all that is known

	followers map[schema.GroupVersionResource]*follower
	running   sync.WaitGroup
}

// follower feeds the objects of one resource into the graph.
type follower struct {
	kind   *kind
	stop   context.CancelFunc
	synced <-chan struct{} // closed when all objects that were there are in the graph
}

func newCollector(deps controller.Deps) *collector {
	queue := controller.NewQueue[types.UID](deps.Metrics, "garbage_collector_attempt_to_delete")
	c := deps.Client
	return &collector{client: c, log: deps.Log, rediscover: rediscover, queue: queue, graph: newGraph(queue.Add), followers: map[schema.GroupVersionResource]*follower{},
		discover: func() (resources, error) { return discover(c.Kubernetes().Discovery()) }}
}

func (c *collector) run(ctx context.Context, do controller.Do) {
	defer c.running.Wait()
	defer c.queue.ShutDown()
	for !c.follow(ctx) {
		select {
		case <-time.After(retryDiscovery):
		case <-ctx.Done():
			return
		}
	}
	for range workers {
		c.running.Go(func() {
			for c.next(ctx, do) {
			}
		})
	}
	ticker := time.NewTicker(c.rediscover)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.follow(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// follow finds out which resources there are, follows those that are new, no longer follows those that are gone, and waits until all
// objects are in the graph. It says whether it found out.
func (c *collector) follow(ctx context.Context) (known bool) {
	found, err := c.discover()
	if err != nil {
		c.log.Warn("the garbage collector does not know which resources there are and asks again", "error", err)
		return false
	}
	found.keep(c.graph.served) // nobody else writes it
	for resource, f := range c.followers {
		if k := found.followed[resource]; k == nil && !found.failed[resource.GroupVersion()] || k != nil && *k != *f.kind {
			f.stop()
			delete(c.followers, resource)
			c.locked(func() { c.graph.forget(f.kind) })
		}
	}
	for resource, k := range found.followed {
		if c.followers[resource] == nil {
			c.locked(func() { c.settled = false })
			c.followers[resource] = c.start(ctx, k)
		}
	}
	c.settle(ctx)
	if !maps.EqualFunc(found.served, c.graph.served, func(a, b *kind) bool { return *a == *b }) {
		c.locked(func() { c.graph.serve(found.served) })
	}
	return true
}

// settle waits until all objects of all resources are in the graph, or long enough: a resource that does not work must not stop the collector.
func (c *collector) settle(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, c.rediscover)
	defer cancel()
	for resource, f := range c.followers {
		select {
		case <-f.synced:
		case <-waiting.Done():
			if ctx.Err() != nil {
				return
			}
			c.log.Warn("the garbage collector has not seen all objects of a resource and goes on without", "resource", resource.String())
		}
	}
	c.locked(func() { c.settled = true })
}

func (c *collector) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// start feeds the objects of a resource into the graph.
func (c *collector) start(ctx context.Context, k *kind) *follower {
	informer := c.client.MetadataInformers(client.InformerOptions{}).ForResource(k.resource).Informer()
	ctx, stop := context.WithCancel(ctx)
	if err := informer.SetTransform(slim); err != nil {
		panic("setting a transform on an informer that does not run: " + err.Error())
	}
	// Nothing may enter the graph after it has been told to forget the kind.
	change := func(change func(*kind, *metav1.PartialObjectMetadata), obj any) {
		if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = lost.Obj
		}
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			c.locked(func() {
				if ctx.Err() == nil {
					change(k, m)
				}
			})
		}
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { change(c.graph.observe, obj) },
		UpdateFunc: func(before, after any) {
			if before.(metav1.Object).GetUID() != after.(metav1.Object).GetUID() {
				change(c.graph.gone, before) // one went and another of its name came while nobody watched
			}
			change(c.graph.observe, after)
		},
		DeleteFunc: func(obj any) { change(c.graph.gone, obj) },
	})
	if err != nil {
		panic("following an informer that does not run: " + err.Error())
	}
	c.running.Go(func() { informer.RunWithContext(ctx) })
	return &follower{kind: k, stop: stop, synced: registered.HasSyncedChecker().Done()}
}

// slim leaves of an object's metadata what the graph needs. What it is given is shared with others and stays as it is.
func slim(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers}}, nil
}

// next looks at the next uid, and says whether there may be more.
func (c *collector) next(ctx context.Context, do controller.Do) bool {
	uid, down := c.queue.Get()
	if down {
		return false
	}
	defer c.queue.Done(uid)
	again, err := c.reconcile(ctx, do, uid)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil || again:
		c.queue.AddRateLimited(uid)
	default:
		c.queue.Forget(uid)
	}
	return true
}

// reconcile decides about a node and carries the decision out.
func (c *collector) reconcile(ctx context.Context, do controller.Do, uid types.UID) (again bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("the garbage collector panicked", "uid", uid, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	var p plan
	c.locked(func() { p = c.graph.decide(uid, c.settled) })
	if p.empty() {
		return false, nil
	}
	for _, because := range p.because {
		ctx = client.Because(ctx, because)
	}
	if err = errors.Join(do(ctx, p.actions()...), do(ctx, p.questions(c.kind, c.told)...)); err != nil {
		c.log.Debug("the garbage collector tries again", "uid", uid, "object", p.String(), "error", err)
	}
	return p.again, err
}

// kind finds a kind.
func (c *collector) kind(by kindName) (k *kind) {
	c.locked(func() { k = c.graph.served[by] })
	return k
}

// told takes note of what the server said about a name.
func (c *collector) told(uid types.UID, by name, said answer) {
	c.locked(func() { c.graph.verified(uid, by, said) })
}
