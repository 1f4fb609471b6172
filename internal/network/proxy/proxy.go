package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"skiff/internal/client"
	"skiff/internal/network/proxy/conntrack"
	"skiff/internal/network/proxy/health"
	"skiff/internal/network/proxy/model"
)

// Options are what a proxy is made with.
type Options struct {
	Client   *client.Client
	NodeName string
	NodeIPs  []netip.Addr // at most one per family; if there are none, those of the Node object are taken once it has any
	Mode     string       // nftables, which is the default, iptables or userspace

	ClusterCIDRs      []netip.Prefix // of pods, on all nodes
	NodePortAddresses []netip.Prefix // where node ports answer; the node's IPs unless given
	MasqueradeAll     bool
	MasqueradeBit     uint

	// MinSyncPeriod is the least time between two changes to the kernel; the first change after that time goes out at once. If changes take
	// long, it is five times as long as the last one took. SyncPeriod is how often what the kernel has is looked at. Zero is a default.
	MinSyncPeriod, SyncPeriod time.Duration

	// HealthzAddress is where /healthz and /livez are answered, MetricsAddress where /metrics and /proxyMode are; nowhere if empty.
	HealthzAddress, MetricsAddress string

	// Standalone says that objects come over the network and are nobody else's: what is of no use here is taken off them.
	Standalone bool

	// Programmed is told of each Service and EndpointSlice whose change is in effect now, with when it was seen here and when it came into effect. It
	// must not block. What was there at the start is not told of.
	Programmed func(object metav1.Object, seen, done time.Time)

	Log *slog.Logger
}

const (
	defaultMinSync  = 100 * time.Millisecond
	defaultSync     = 30 * time.Second
	firstRetry      = time.Second
	maxTold         = 1000 // changes that Programmed is told of at once
	restAfter       = 5    // times as long as a sync took
	longestInterval = 10 * time.Second
)

// Proxy has Services answer on this node.
type Proxy struct {
	o        Options
	mode     model.Mode
	metrics  *metrics
	health   health.Proxy
	checks   health.Services
	recorder record.EventRecorder

	mu      sync.Mutex
	tracker *model.Tracker
	waiting []waiting // changes that are not in effect
	lacking [2]int    // Ports whose internal, or external, traffic is dropped
	wake    chan struct{}
}

// waiting is a change that is to be told of.
type waiting struct {
	object metav1.Object
	seen   time.Time
}

// New makes a proxy. It changes nothing yet.
func New(o Options) (*Proxy, error) {
	o.Mode, o.MinSyncPeriod, o.SyncPeriod = cmp.Or(o.Mode, "nftables"), cmp.Or(o.MinSyncPeriod, defaultMinSync), cmp.Or(o.SyncPeriod, defaultSync)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Client == nil || o.NodeName == "" {
		return nil, errors.New("the service proxy needs a client and the name of its node")
	}
	if err := known(o.Mode); err != nil {
		return nil, err
	}
	if err := checkRanges(o); err != nil {
		return nil, err
	}
	p := &Proxy{o: o, metrics: newMetrics(), wake: make(chan struct{}, 1)}
	p.checks.Healthy = p.health.Healthy
	p.checks.Failed = p.checkFailed
	return p, nil
}

func checkRanges(o Options) error {
	for _, p := range append(append([]netip.Prefix{}, o.ClusterCIDRs...), o.NodePortAddresses...) {
		if !p.IsValid() {
			return errors.New("the service proxy was given a range of addresses that is none")
		}
	}
	seen := map[model.Family]netip.Addr{}
	for _, a := range o.NodeIPs {
		if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() {
			return fmt.Errorf("%s is no address that a node is reached at", a)
		}
		if other, ok := seen[model.FamilyOf(a)]; ok {
			return fmt.Errorf("the node's addresses %s and %s are of the same family", other, a)
		}
		seen[model.FamilyOf(a)] = a
	}
	return nil
}

// Metrics are the proxy's metrics.
func (p *Proxy) Metrics() prometheus.Gatherer { return p.metrics.registry }

// Run serves until ctx ends. What the kernel has by then stays.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop, err := p.listen(&wg)
	if err != nil {
		return err
	}
	defer stop()
	feed := p.newFeed()
	if err := p.findNodeIPs(ctx, feed); err != nil {
		return ignoreEnd(ctx, err)
	}
	if p.mode, err = newMode(p.o.Mode, p.config()); err != nil {
		return fmt.Errorf("service proxy mode %s: %w", p.o.Mode, err)
	}
	defer p.mode.Close()
	defer p.checks.Close()
	p.tracker = model.NewTracker(p.o.NodeName, p.o.NodeIPs)
	p.recorder = p.o.Client.RecorderAs(ctx, "kube-proxy")
	p.health.SetFamilies(p.families()...)
	if err := feed.start(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	defer feed.stop()
	p.o.Log.Info("service proxy runs", "mode", p.o.Mode, "node", p.o.NodeName)
	p.loop(ctx)
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (p *Proxy) config() model.Config {
	return model.Config{
		NodeName: p.o.NodeName, NodeIPs: p.o.NodeIPs, ClusterCIDRs: p.o.ClusterCIDRs, NodePortAddresses: p.o.NodePortAddresses,
		MasqueradeAll: p.o.MasqueradeAll, MasqueradeBit: p.o.MasqueradeBit, Log: p.o.Log,
	}
}

func (p *Proxy) families() []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, a := range p.o.NodeIPs {
		if model.FamilyOf(a) == model.IPv4 {
			out = append(out, corev1.IPv4Protocol)
		} else {
			out = append(out, corev1.IPv6Protocol)
		}
	}
	return out
}

// loop brings changes into effect as they come.
func (p *Proxy) loop(ctx context.Context) {
	look := time.NewTicker(p.o.SyncPeriod)
	defer look.Stop()
	retry := firstRetry
	for first := true; ; {
		took, err := p.sync(ctx)
		rest := min(max(p.o.MinSyncPeriod, restAfter*took), max(longestInterval, p.o.MinSyncPeriod))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.o.Log.Error("services are not up to date on this node", "error", err, "retry", retry)
			rest, retry = retry, min(2*retry, p.o.SyncPeriod)
			p.signal()
		default:
			retry = firstRetry
			if first {
				first = false
				if err := cleanOthers(p.o.Mode); err != nil {
					p.o.Log.Warn("what another mode of the service proxy left behind is still there", "error", err)
				}
			}
		}
		if !sleep(ctx, rest) || !p.await(ctx, look.C) {
			return
		}
	}
}

// await waits for something to do.
func (p *Proxy) await(ctx context.Context, look <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.wake:
			return true
		case <-look:
			intact, err := p.mode.Intact(ctx)
			if err != nil {
				p.o.Log.Warn("cannot tell whether services are still served", "error", err)
				continue
			}
			if !intact {
				p.o.Log.Warn("somebody removed the rules of the service proxy; writing them anew")
				p.mu.Lock()
				p.tracker.Forget()
				p.mu.Unlock()
				return true
			}
		}
	}
}

// sync brings what is pending into effect, and tells how long it took.
func (p *Proxy) sync(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	p.mu.Lock()
	told := p.waiting
	p.waiting = nil
	if !p.tracker.Pending() {
		p.mu.Unlock()
		return 0, nil
	}
	upTo := time.Now()
	state, changes := p.tracker.Take()
	checks := p.tracker.HealthChecks()
	p.mu.Unlock()

	if err := p.mode.Sync(ctx, state, changes); err != nil {
		p.metrics.failures.Inc()
		p.mu.Lock()
		p.tracker.Forget()
		if p.waiting = append(told, p.waiting...); len(p.waiting) > maxTold {
			p.waiting = p.waiting[:maxTold]
		}
		p.mu.Unlock()
		return time.Since(start), err
	}
	done := time.Now()
	p.health.Updated(upTo)
	p.observe(state, changes, start, done)
	p.tell(told, done)
	p.checks.Sync(checks)
	if p.mode.FlowsInKernel() {
		n, err := conntrack.Forget(state, changes)
		p.metrics.flows.Add(float64(n))
		if err != nil { // it goes on with the next change; such flows end by themselves when their senders pause
			p.o.Log.Warn("flows of UDP may lead to endpoints that are gone", "error", err)
		}
	}
	return done.Sub(start), nil
}

func (p *Proxy) observe(state *model.State, changes model.Changes, start, done time.Time) {
	seconds := done.Sub(start).Seconds()
	p.metrics.duration.Observe(seconds)
	p.metrics.last.SetToCurrentTime()
	p.metrics.endpointsPending.Set(0)
	p.metrics.servicesPending.Set(0)
	p.countLacking(state, changes)
	if !changes.All {
		p.metrics.partial.Observe(seconds)
		return
	}
	p.metrics.full.Observe(seconds)
	p.o.Log.Info("services are served", "ports", len(state.Ports), "took", done.Sub(start).Round(time.Millisecond))
}

// tell says of changes that they are in effect.
func (p *Proxy) tell(list []waiting, done time.Time) {
	for _, w := range list {
		if at, err := time.Parse(time.RFC3339Nano, w.object.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime]); err == nil {
			p.metrics.program.Observe(done.Sub(at).Seconds())
		}
		if p.o.Programmed != nil {
			p.o.Programmed(w.object, w.seen, done)
		}
	}
}

func (p *Proxy) checkFailed(service types.NamespacedName, port uint16, err error) {
	p.o.Log.Warn("health check of a service", "service", service, "port", port, "error", err)
	p.recorder.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name},
		corev1.EventTypeWarning, "FailedToStartServiceHealthcheck", "node %s failed to start healthcheck %q on port %d: %v", p.o.NodeName, service, port, err)
}

// signal has the loop look for work.
func (p *Proxy) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
