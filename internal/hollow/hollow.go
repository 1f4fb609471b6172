package hollow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"skiff/internal/client"
)

// Options configures hollow nodes.
type Options struct {
	Count      int
	NamePrefix string // "hollow-"; a number from 0 follows

	// Client returns the client of a node: user system:node:NAME, group system:nodes. All clients must reach the same server.
	Client func(node string) (*client.Client, error)
	// Watch watches pods and nodes for all of them. It must be allowed to list and watch both, as schedulers are.
	Watch *client.Client

	ReadyDelay  time.Duration // from when a pod is bound until it is running and ready
	RunTime     time.Duration // how long containers run that complete (restartPolicy Never and OnFailure) or fail: a second
	StopDelay   time.Duration // how long containers take to stop when their pod is deleted, at most its grace period
	FailureRate float64       // the share of container runs that fail, from 0 to 1

	Capacity corev1.ResourceList           // of each node: 32 CPUs, 128 GiB of memory, 110 pods
	Labels   func(i int) map[string]string // of a node, besides those that every node has; zones for instance
	Lease    time.Duration                 // duration of leases: 40 s. They are renewed four times as often
	Status   time.Duration                 // how often the status is posted if nothing changes: every 5 minutes
	Workers  int                           // how many requests are in flight at a time: 8
	Log      *slog.Logger
}

const (
	defaultPrefix  = "hollow-"
	defaultRunTime = time.Second
	defaultLease   = 40 * time.Second
	defaultStatus  = 5 * time.Minute
	defaultWorkers = 8
	renewals       = 4 // per lease duration

	// Failed work is requeued after firstRetry, then after twice as long each time, up to lastRetry.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Run runs hollow nodes until ctx ends.
func Run(ctx context.Context, o Options) error {
	n, err := New(o)
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// Nodes is a set of hollow nodes.
type Nodes struct {
	options   Options
	behaviour behaviour
	kubelets  map[string]*kubelet // by name; never changes
	ordered   []*kubelet

	api       *api
	pods      cache.SharedIndexInformer
	nodes     cache.SharedIndexInformer
	podLister corelisters.PodLister

	nodeQueue    workqueue.TypedRateLimitingInterface[nodeTask] // what nodes have to do for themselves
	usages       usages
	podQueue     workqueue.TypedRateLimitingInterface[types.NamespacedName] // pods to reconcile
	started      atomic.Bool                                                // the fields above are set
	unregistered atomic.Int64                                               // number of nodes that have not registered yet
	ready        chan struct{}                                              // closed when all have registered
}

// New prepares hollow nodes. Run starts them.
func New(o Options) (*Nodes, error) {
	switch {
	case o.Count < 0:
		return nil, fmt.Errorf("the number of hollow nodes must not be negative: %d", o.Count)
	case o.Client == nil || o.Watch == nil:
		return nil, errors.New("hollow nodes need Options.Client and Options.Watch")
	case o.FailureRate < 0 || o.FailureRate > 1:
		return nil, fmt.Errorf("the failure rate of hollow nodes must be from 0 to 1: %v", o.FailureRate)
	}
	o.NamePrefix = cmp.Or(o.NamePrefix, defaultPrefix)
	o.RunTime, o.Lease, o.Status = cmp.Or(o.RunTime, defaultRunTime), cmp.Or(o.Lease, defaultLease), cmp.Or(o.Status, defaultStatus)
	o.Workers = cmp.Or(o.Workers, defaultWorkers)
	if o.Capacity == nil {
		o.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"),
			corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	}
	for _, q := range o.Capacity {
		_ = q.String() // String caches its text, lest nodes that share the quantity write it at the same time
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	n := &Nodes{options: o, behaviour: behaviour{readyAfter: o.ReadyDelay, runsFor: o.RunTime, stopsAfter: o.StopDelay, failureRate: o.FailureRate},
		kubelets: make(map[string]*kubelet, o.Count), api: &api{}, ready: make(chan struct{})}
	n.unregistered.Store(int64(o.Count))
	if o.Count == 0 {
		close(n.ready)
	}
	for i := range o.Count {
		k := newKubelet(i, fmt.Sprintf("%s%d", o.NamePrefix, i))
		n.kubelets[k.name] = k
		n.ordered = append(n.ordered, k)
	}
	return n, nil
}

// Run runs the nodes until ctx ends, and returns when all their work has ended.
func (n *Nodes) Run(ctx context.Context) error {
	n.nodeQueue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[nodeTask](firstRetry, lastRetry))
	n.podQueue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry))
	all := n.options.Watch.Informers(client.InformerOptions{})
	bound := n.options.Watch.Informers(client.InformerOptions{Select: func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName!=" }})
	n.nodes, n.pods, n.podLister = all.Core().V1().Nodes().Informer(), bound.Core().V1().Pods().Informer(), bound.Core().V1().Pods().Lister()
	nodesSynced, err := n.nodes.AddEventHandler(handlerFor(n.nodeChanged, n.nodeDeleted))
	if err != nil {
		return err
	}
	podsSynced, err := n.pods.AddEventHandler(handlerFor(n.podChanged, n.podDeleted))
	if err != nil {
		return err
	}
	var working sync.WaitGroup
	defer working.Wait()
	defer n.nodeQueue.ShutDown()
	defer n.podQueue.ShutDown()
	// Nodes come first: a node's pod CIDR must be known to tell which of its addresses a pod has.
	all.StartWithContext(ctx)
	defer all.Shutdown()
	if !cache.WaitFor(ctx, "", nodesSynced.HasSyncedChecker()) {
		return nil
	}
	bound.StartWithContext(ctx)
	defer bound.Shutdown()
	if !cache.WaitFor(ctx, "", podsSynced.HasSyncedChecker()) {
		return nil
	}
	for range n.options.Workers {
		working.Go(func() { work(ctx, n.nodeQueue, n.runTask) })
		working.Go(func() { work(ctx, n.podQueue, n.reconcile) })
	}
	working.Go(func() { n.renewLeases(ctx) })
	n.started.Store(true)
	for _, k := range n.ordered {
		n.nodeQueue.Add(nodeTask{k, register})
	}
	<-ctx.Done()
	return nil
}

// WaitReady returns when all nodes have registered and have leases.
func (n *Nodes) WaitReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ready:
		return nil
	}
}

// handlerFor returns an informer's event handler.
func handlerFor[T any](changed, deleted func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(obj.(T)) },
		UpdateFunc: func(_, obj any) { changed(obj.(T)) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if last, ok := obj.(T); ok {
				deleted(last)
			}
		},
	}
}

// work processes a queue, one item at a time. do returns when the item is to be requeued; zero is never.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], do func(context.Context, T) (time.Time, error)) {
	for {
		item, down := queue.Get()
		if down {
			return
		}
		requeueAt, err := do(ctx, item)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			queue.AddRateLimited(item)
		default:
			queue.Forget(item)
			if !requeueAt.IsZero() {
				queue.AddAfter(item, time.Until(requeueAt))
			}
		}
		queue.Done(item)
	}
}

// Stop makes a node unreachable, as if its cable was pulled: its lease is not renewed and its pods are left alone. It reports whether the node exists.
func (n *Nodes) Stop(name string) bool {
	k := n.kubelets[name]
	if k != nil {
		k.setStopped(true)
	}
	return k != nil
}

// Start starts a stopped node again. It catches up with what it has missed. It reports whether the node exists.
func (n *Nodes) Start(name string) bool {
	k := n.kubelets[name]
	if k == nil {
		return false
	}
	k.setStopped(false)
	if !n.started.Load() {
		return true
	}
	n.nodeQueue.Add(nodeTask{k, register})
	for _, obj := range n.pods.GetStore().List() {
		if pod := obj.(*corev1.Pod); pod.Spec.NodeName == name {
			n.podChanged(pod)
		}
	}
	return true
}
