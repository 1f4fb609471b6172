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

// Options say how many hollow nodes there are, and what they are like.
type Options struct {
	Count      int
	NamePrefix string // "hollow-"; a number from 0 follows

	// Client returns how a node reaches the API: as user system:node:NAME, of group system:nodes. All reach the same server.
	Client func(node string) (*client.Client, error)
	// Watch follows pods and nodes for all of them. It must be allowed to list and watch both, as schedulers are.
	Watch *client.Client

	ReadyDelay  time.Duration // from when a pod is bound until it is running and ready
	RunTime     time.Duration // how long containers run that are to end (restartPolicy Never and OnFailure), or that fail: a second
	StopDelay   time.Duration // how long containers take to end when their pod is deleted, at most its grace period
	FailureRate float64       // the share of runs of containers that fail, from 0 to 1

	Capacity corev1.ResourceList           // of each node: 32 CPUs, 128 GiB of memory, 110 pods
	Labels   func(i int) map[string]string // of a node, besides those that every node has; zones for instance
	Lease    time.Duration                 // how long leases hold: 40 s. They are renewed four times as often
	Status   time.Duration                 // how often the status is posted if nothing changes: every 5 minutes
	Workers  int                           // how many requests are made at a time: 8
	Log      *slog.Logger
}

const (
	defaultPrefix  = "hollow-"
	defaultRunTime = time.Second
	defaultLease   = 40 * time.Second
	defaultStatus  = 5 * time.Minute
	defaultWorkers = 8
	renewals       = 4 // of a lease while it holds

	// What failed is tried again after firstRetry, and after twice as long each further time.
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

// Nodes are hollow nodes.
type Nodes struct {
	options  Options
	life     life
	kubelets map[string]*kubelet // by name; never changes
	ordered  []*kubelet

	api       *api
	pods      cache.SharedIndexInformer
	nodes     cache.SharedIndexInformer
	podLister corelisters.PodLister

	due      workqueue.TypedRateLimitingInterface[errand]               // what is due for nodes themselves
	podQueue workqueue.TypedRateLimitingInterface[types.NamespacedName] // pods to be looked at
	started  atomic.Bool                                                // all of the above is there
	missing  atomic.Int64                                               // how many have not registered yet
	ready    chan struct{}                                              // closed when none is missing
}

// New prepares hollow nodes. They begin with Run.
func New(o Options) (*Nodes, error) {
	switch {
	case o.Count < 0:
		return nil, fmt.Errorf("%d hollow nodes are too few", o.Count)
	case o.Client == nil || o.Watch == nil:
		return nil, errors.New("hollow nodes need clients")
	case o.FailureRate < 0 || o.FailureRate > 1:
		return nil, fmt.Errorf("a failure rate of %v is not from 0 to 1", o.FailureRate)
	}
	o.NamePrefix = cmp.Or(o.NamePrefix, defaultPrefix)
	o.RunTime, o.Lease, o.Status = cmp.Or(o.RunTime, defaultRunTime), cmp.Or(o.Lease, defaultLease), cmp.Or(o.Status, defaultStatus)
	o.Workers = cmp.Or(o.Workers, defaultWorkers)
	if o.Capacity == nil {
		o.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"),
			corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	}
	for _, q := range o.Capacity {
		_ = q.String() // it keeps its text, lest nodes that share it write it at the same time
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	n := &Nodes{options: o, life: life{readyAfter: o.ReadyDelay, runsFor: o.RunTime, stopsAfter: o.StopDelay, failures: o.FailureRate},
		kubelets: make(map[string]*kubelet, o.Count), api: &api{}, ready: make(chan struct{})}
	n.missing.Store(int64(o.Count))
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

// Run runs the nodes until ctx ends and all their work has.
func (n *Nodes) Run(ctx context.Context) error {
	n.due = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[errand](firstRetry, lastRetry))
	n.podQueue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry))
	all := n.options.Watch.Informers(client.InformerOptions{})
	bound := n.options.Watch.Informers(client.InformerOptions{Select: func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName!=" }})
	n.nodes, n.pods, n.podLister = all.Core().V1().Nodes().Informer(), bound.Core().V1().Pods().Informer(), bound.Core().V1().Pods().Lister()
	nodesKnown, err := n.nodes.AddEventHandler(handle(n.nodeChanged, n.nodeGone))
	if err != nil {
		return err
	}
	podsKnown, err := n.pods.AddEventHandler(handle(n.podChanged, n.podGone))
	if err != nil {
		return err
	}
	var working sync.WaitGroup
	defer working.Wait()
	defer n.due.ShutDown()
	defer n.podQueue.ShutDown()
	// Nodes first: it takes a node's range to know which of its addresses a pod has.
	all.StartWithContext(ctx)
	defer all.Shutdown()
	if !cache.WaitFor(ctx, "", nodesKnown.HasSyncedChecker()) {
		return nil
	}
	bound.StartWithContext(ctx)
	defer bound.Shutdown()
	if !cache.WaitFor(ctx, "", podsKnown.HasSyncedChecker()) {
		return nil
	}
	for range n.options.Workers {
		working.Go(func() { work(ctx, n.due, n.runErrand) })
		working.Go(func() { work(ctx, n.podQueue, n.lookAt) })
	}
	working.Go(func() { n.renewLeases(ctx) })
	n.started.Store(true)
	for _, k := range n.ordered {
		n.due.Add(errand{k, register})
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

// handle makes an informer's handler.
func handle[T any](changed, gone func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(obj.(T)) },
		UpdateFunc: func(_, obj any) { changed(obj.(T)) },
		DeleteFunc: func(obj any) {
			if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = lost.Obj
			}
			if last, ok := obj.(T); ok {
				gone(last)
			}
		},
	}
}

// work does what is in a queue, one at a time. do returns when there is more to do; zero is never.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], do func(context.Context, T) (time.Time, error)) {
	for {
		item, down := queue.Get()
		if down {
			return
		}
		again, err := do(ctx, item)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			queue.AddRateLimited(item)
		default:
			queue.Forget(item)
			if !again.IsZero() {
				queue.AddAfter(item, time.Until(again))
			}
		}
		queue.Done(item)
	}
}

// Stop has a node fall silent, as if its cable was pulled: neither its lease is renewed nor anything done about its pods. It says whether there is
// such a node.
func (n *Nodes) Stop(name string) bool {
	k := n.kubelets[name]
	if k != nil {
		k.setStopped(true)
	}
	return k != nil
}

// Start has a node that was stopped go on. It catches up with what it has missed.
func (n *Nodes) Start(name string) bool {
	k := n.kubelets[name]
	if k == nil {
		return false
	}
	k.setStopped(false)
	if !n.started.Load() {
		return true
	}
	n.due.Add(errand{k, register})
	for _, obj := range n.pods.GetStore().List() {
		if pod := obj.(*corev1.Pod); pod.Spec.NodeName == name {
			n.podChanged(pod)
		}
	}
	return true
}
