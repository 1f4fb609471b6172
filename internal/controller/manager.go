package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"skiff/internal/client"
	"skiff/internal/journey"
)

const (
	defaultWorkers = 5
	// A key that failed is requeued after firstRetry, then after twice as long each time, up to lastRetry.
	firstRetry = 5 * time.Millisecond
	lastRetry  = 1000 * time.Second
)

// Options configures a Manager.
type Options struct {
	// Client returns the client that acts as a service account of kube-system.
	Client func(account string) (*client.Client, error)
	// Informers are shared by all loops.
	Informers informers.SharedInformerFactory
	Loops     []Loop
	Log       *slog.Logger
	Metrics   *Metrics // may be nil
	// Now returns the time; time.Now if nil.
	Now func() time.Time
}

// Manager runs loops.
type Manager struct {
	options Options
	runners []*runner
	ready   chan struct{} // closed when all loops reconcile keys
}

// New prepares loops. Run starts their informers.
func New(o Options) (*Manager, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	m := &Manager{options: o, ready: make(chan struct{})}
	for _, loop := range o.Loops {
		r, err := newRunner(&m.options, loop)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", loop.Name, err)
		}
		m.runners = append(m.runners, r)
	}
	return m, nil
}

// Run runs the loops until ctx ends, and returns when all their work has ended.
func (m *Manager) Run(ctx context.Context) {
	m.options.Informers.StartWithContext(ctx)
	var wg, filling sync.WaitGroup
	for _, r := range m.runners {
		filling.Add(1)
		wg.Go(func() { r.run(ctx, filling.Done) })
	}
	filling.Wait()
	close(m.ready)
	wg.Wait()
	m.options.Informers.Shutdown()
}

// WaitReady returns when the caches have synced and all loops reconcile keys.
func (m *Manager) WaitReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.ready:
		return nil
	}
}

// runner runs one loop.
type runner struct {
	loop    Loop
	options *Options
	queue   workqueue.TypedRateLimitingInterface[Key]
	actor   *actor
	pending *pending
	synced  []cache.DoneChecker

	mu     sync.Mutex
	causes map[Key][]metav1.Object // the changes that a queued key is reconciled for
}

func newRunner(o *Options, loop Loop) (*runner, error) {
	if loop.Workers == 0 {
		loop.Workers = defaultWorkers
	}
	loop.ServiceAccount, loop.EventSource = cmp.Or(loop.ServiceAccount, loop.Name), cmp.Or(loop.EventSource, loop.Name)
	c, err := o.Client(loop.ServiceAccount)
	if err != nil {
		return nil, err
	}
	r := &runner{loop: loop, options: o, causes: map[Key][]metav1.Object{}, actor: &actor{name: loop.Name, client: c, log: o.Log}}
	metrics := o.Metrics
	if len(loop.Watch) == 0 {
		metrics = nil // a loop that watches nothing queues no keys
	}
	r.queue = NewQueue[Key](metrics, cmp.Or(loop.QueueName, loop.Name))
	r.pending = newPending(r.queue.Add)
	r.actor.wrote = func(ctx context.Context, resource schema.GroupVersionResource, key Key, uid types.UID, version string) {
		if by, ok := ctx.Value(reconciledKey{}).(Key); ok {
			r.pending.wrote(by, resource, key, uid, version, o.Now())
		}
	}
	r.actor.hidden = func(ctx context.Context, resource schema.GroupVersionResource, key Key, uid types.UID) {
		if by, ok := ctx.Value(reconciledKey{}).(Key); ok {
			r.pending.hidden(by, resource, key, uid, o.Now())
		}
	}
	for _, w := range loop.Watch {
		if err := r.watch(w); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// reconciledKey is the context key of the Key that is being reconciled.
type reconciledKey struct{}

// watch queues the keys that changes of a resource concern.
func (r *runner) watch(w Watch) error {
	var resource schema.GroupVersionResource
	if w.Type != nil {
		resource = ResourceOf(w.Type)
		r.pending.stores[resource] = w.Informer.GetStore()
	}
	handle := func(before, after metav1.Object) {
		obj := after
		if obj == nil {
			obj = before
		}
		r.pending.observed(resource, obj, after == nil)
		if w.Keys == nil {
			r.add(KeyOf(obj), obj)
			return
		}
		for _, key := range w.Keys(before, after) {
			r.add(key, obj)
		}
	}
	registered, err := w.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { handle(nil, obj.(metav1.Object)) },
		UpdateFunc: func(before, after any) { handle(before.(metav1.Object), after.(metav1.Object)) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if deleted, ok := obj.(metav1.Object); ok {
				handle(deleted, nil)
			}
		},
	})
	if err != nil {
		return err
	}
	r.synced = append(r.synced, registered.HasSyncedChecker())
	return nil
}

// add queues a key because of a change of an object.
func (r *runner) add(key Key, because metav1.Object) {
	r.mu.Lock()
	if causes := r.causes[key]; len(causes) < journey.MaxCauses {
		r.causes[key] = append(causes, because)
	}
	r.mu.Unlock()
	r.queue.Add(key)
}

func (r *runner) takeCauses(key Key) []metav1.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	causes := r.causes[key]
	delete(r.causes, key)
	return causes
}

// run runs the loop until ctx ends. It calls cachesSynced when the caches have synced, or ctx has ended.
func (r *runner) run(ctx context.Context, cachesSynced func()) {
	r.actor.recorder = r.actor.client.RecorderAs(ctx, r.loop.EventSource)
	synced := cache.WaitFor(ctx, "", r.synced...)
	cachesSynced()
	if !synced {
		r.queue.ShutDown()
		return
	}
	var wg sync.WaitGroup
	if r.loop.Run != nil {
		wg.Go(func() { r.loop.Run(ctx, r.carryOut) })
	}
	for range r.loop.Workers {
		wg.Go(func() {
			for r.processNext(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	wg.Wait()
}

// processNext reconciles the next key, and reports whether there may be more.
func (r *runner) processNext(ctx context.Context) bool {
	key, down := r.queue.Get()
	if down {
		return false
	}
	defer r.queue.Done(key)
	if late := r.pending.lateHidden(key, r.options.Now()); len(late) > 0 && r.exists(ctx, late) {
		r.pending.extend(key, r.options.Now())
	}
	wait, late := r.pending.mustWait(key, r.options.Now())
	if wait {
		r.queue.AddAfter(key, observeTimeout) // in case the caches never observe the write
		return true
	}
	if late {
		r.options.Log.Warn("informers have not observed a write in time; reconciling without it", "loop", r.loop.Name, "key", key)
	}
	requeueAfter, err := r.reconcile(ctx, key)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		level := slog.LevelWarn
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, "NamespaceTerminating") {
			level = slog.LevelDebug // another writer was first: the caches will observe it
		}
		r.options.Log.Log(ctx, level, "failed to reconcile; requeued with back-off", "loop", r.loop.Name, "key", key, "error", err)
		r.queue.AddRateLimited(key)
	default:
		r.queue.Forget(key)
		if requeueAfter > 0 {
			r.queue.AddAfter(key, requeueAfter)
		}
	}
	return true
}

// exists reports whether any of the objects exists, also if it still waits for its initializers.
func (r *runner) exists(ctx context.Context, objects []awaitedObject) bool {
	for _, o := range objects {
		known, err := r.actor.client.Metadata().Resource(o.resource).Namespace(o.key.Namespace).Get(ctx, o.key.Name, metav1.GetOptions{})
		if err == nil && known.UID == o.uid || err != nil && !apierrors.IsNotFound(err) {
			return true
		}
	}
	return false
}

// reconcile decides what to do about a key and carries the decision out.
func (r *runner) reconcile(ctx context.Context, key Key) (requeueAfter time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.options.Log.Error("control loop panicked while reconciling", "loop", r.loop.Name, "key", key, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx = context.WithValue(ctx, reconciledKey{}, key)
	for _, cause := range r.takeCauses(key) {
		ctx = client.Because(ctx, cause)
	}
	span := r.actor.client.BeginIn(ctx, journey.Decide)
	ctx = span.In(ctx)
	decision := r.loop.Reconcile(key, r.options.Now())
	var done tally
	for {
		done.add(decision.Actions)
		err := r.carryOut(ctx, decision.Actions...)
		if decision.Then == nil {
			if err == nil {
				err = decision.Err
			}
			done.endSpan(span, key, err)
			return decision.RequeueAfter, err
		}
		decision = decision.Then(err)
	}
}

func (r *runner) carryOut(ctx context.Context, actions ...Action) error {
	for _, action := range actions {
		if err := action.do(ctx, r.actor); err != nil {
			return err
		}
	}
	return nil
}
