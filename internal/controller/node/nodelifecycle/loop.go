package nodelifecycle

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/node"
)

const (
	// Name is the loop's name.
	Name = "node-lifecycle-controller"

	workers = 8 // as upstream, both for keys and for nodes in a pass

	// taintPeriod is how soon a taint that could not be added is retried.
	taintPeriod = 100 * time.Millisecond
)

// New returns the loop. Its keys are nodes.
func New(deps controller.Deps) controller.Loop {
	factory := deps.Informers
	nodes, pods, leases := factory.Core().V1().Nodes(), factory.Core().V1().Pods(), factory.Coordination().V1().Leases()
	l := &loop{
		nodes: nodes.Lister(), podsOn: node.PodsOn(pods.Informer()),
		leases: leases.Lister().Leases(corev1.NamespaceNodeLease), leaseInformer: leases.Informer(), podInformer: pods.Informer(),
		monitor: newMonitor(settingsOf(deps.Config)), log: deps.Log,
	}
	if l.log == nil {
		l.log = slog.Default()
	}
	return controller.Loop{
		Name: Name, ServiceAccount: node.Account, EventSource: "node-controller", QueueName: "node_lifecycle_controller", Workers: workers,
		Watch: []controller.Watch{{Informer: nodes.Informer(), Type: &corev1.Node{}}},
		Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			n, err := l.nodes.Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			return decide(n, now)
		},
		Run: l.run,
	}
}

type loop struct {
	nodes         corelisters.NodeLister
	podsOn        func(node string) []*corev1.Pod
	leases        coordinationlisters.LeaseNamespaceLister
	leaseInformer cache.SharedIndexInformer
	podInformer   cache.SharedIndexInformer
	monitor       *monitor
	log           *slog.Logger

	mu          sync.Mutex
	staleBefore uint64 // the resourceVersion that the cache of leases must reach before it is trusted again
}

// run checks all nodes every period, and taints those that are queued for it at the zone's rate.
func (l *loop) run(ctx context.Context, do controller.Do) {
	if !cache.WaitFor(ctx, "", l.leaseInformer.HasSyncedChecker(), l.podInformer.HasSyncedChecker()) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var lastPass time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		period := l.monitor.settings.period
		if now.Sub(lastPass) >= period {
			l.pass(ctx, do, now)
			lastPass = now
		}
		next := lastPass.Add(period).Sub(now)
		if untilNext, any := l.taint(ctx, do, now); any {
			next = min(next, max(untilNext, taintPeriod))
		}
		timer.Reset(max(next, 0))
	}
}

// pass checks all nodes once.
func (l *loop) pass(ctx context.Context, do controller.Do, now time.Time) {
	if !l.leasesCurrent() {
		return
	}
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		l.log.Warn("failed to list nodes", "error", err)
		return
	}
	events, unreachable := l.monitor.observe(nodes, func(name string) *coordinationv1.Lease {
		lease, err := l.leases.Get(name)
		if err != nil {
			return nil
		}
		return lease
	}, now)
	l.carryOut(ctx, do, events...)
	marked, failed := map[string]*corev1.Node{}, map[string]bool{}
	var mu sync.Mutex
	parallel(len(unreachable), func(i int) {
		err := l.markUnreachable(ctx, do, unreachable[i])
		if err != nil {
			l.log.Warn("failed to set the status of an unreachable node to Unknown; its pods are not evicted", "node", unreachable[i].Name, "error", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed[unreachable[i].Name] = true
		} else {
			marked[unreachable[i].Name] = unreachable[i]
		}
	})
	decided := l.monitor.evaluate(nodes, marked, failed, now)
	l.carryOut(ctx, do, decided.actions...)
	parallel(len(decided.unreadyPods), func(i int) {
		if l.markPods(ctx, do, decided.unreadyPods[i], now) {
			l.monitor.podsMarked(decided.unreadyPods[i])
		}
	})
}

// leasesCurrent reports whether the cache of leases has caught up with what was read from the API server.
func (l *loop) leasesCurrent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.staleBefore == 0 {
		return true
	}
	version, err := strconv.ParseUint(l.leaseInformer.LastSyncResourceVersion(), 10, 64)
	if err != nil || version < l.staleBefore {
		return false
	}
	l.staleBefore = 0
	return true
}

// markUnreachable sets a node's conditions to Unknown. Before that it reads the node's lease from the API server: if that has been renewed, the
// cache lags, and no node may be marked because of that.
func (l *loop) markUnreachable(ctx context.Context, do controller.Do, n *corev1.Node) error {
	renewed := l.monitor.renewed(n.Name)
	ask := controller.Call("read Lease "+corev1.NamespaceNodeLease+"/"+n.Name, func(ctx context.Context, c *client.Client) error {
		lease, err := c.Kubernetes().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case renewed.Before(lease.Spec.RenewTime):
			return l.leasesAreStale(lease.ResourceVersion)
		}
		return nil
	})
	return do(ctx, ask, controller.UpdateStatus(n))
}

// errStale is the error of a node that is not marked, as the cache of leases lags.
type errStale string

func (e errStale) Error() string {
	return "the cache of leases is behind: the server is at " + string(e)
}

func (l *loop) leasesAreStale(version string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, err := strconv.ParseUint(version, 10, 64); err == nil {
		l.staleBefore = max(l.staleBefore, v)
	}
	return errStale(version)
}

// markPods sets the pods of an unreachable node to not ready, and reports whether all were.
func (l *loop) markPods(ctx context.Context, do controller.Do, name string, now time.Time) bool {
	all := true
	for _, pod := range l.podsOn(name) {
		err := do(ctx, markNotReady(pod, now)...)
		if err != nil && !apierrors.IsNotFound(err) {
			l.log.Warn("failed to mark a pod of an unreachable node as not ready", "pod", controller.KeyOf(pod), "node", name, "error", err)
			all = false
		}
	}
	return all
}

// taint taints the nodes whose turn it is, and returns when the next one's is, if any is queued.
func (l *loop) taint(ctx context.Context, do controller.Do, now time.Time) (next time.Duration, queued bool) {
	get := func(name string) *corev1.Node {
		n, err := l.nodes.Get(name)
		if err != nil {
			return nil
		}
		return n
	}
	for _, t := range l.monitor.toTaint(get, now) {
		if err := do(ctx, t.actions...); err != nil {
			l.log.Debug("failed to taint node; retrying", "node", t.node, "error", err)
			l.monitor.requeue(t)
		}
	}
	return l.monitor.nextTaint(now)
}

// carryOut carries out actions that do not depend on each other. What fails is decided anew in the next pass.
func (l *loop) carryOut(ctx context.Context, do controller.Do, actions ...controller.Action) {
	parallel(len(actions), func(i int) {
		if err := do(ctx, actions[i]); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			l.log.Warn("failed to carry out an action; retrying in the next pass", "loop", Name, "action", actions[i].String(), "error", err)
		}
	})
}

// parallel calls do for 0 to n-1, at most workers at a time.
func parallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, workers) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func settingsOf(c controller.Config) settings {
	seconds := func(s controller.Seconds, otherwise time.Duration) time.Duration {
		if s == 0 {
			return otherwise
		}
		return time.Duration(float64(s) * float64(time.Second))
	}
	return settings{
		period:         seconds(c.NodeMonitorPeriod, 5*time.Second),
		grace:          seconds(c.NodeMonitorGracePeriod, 50*time.Second),
		startupGrace:   startupGrace,
		rate:           cmp.Or(float64(c.NodeEvictionRate), 0.1),
		secondaryRate:  cmp.Or(float64(c.SecondaryNodeEvictionRate), 0.01),
		largeZone:      cmp.Or(c.LargeClusterSizeThreshold, 50),
		unhealthyShare: cmp.Or(float64(c.UnhealthyZoneThreshold), 0.55),
	}
}
