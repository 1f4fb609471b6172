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

// Options configures a Proxy.
type Options struct {
	Client   *client.Client
	NodeName string
	NodeIPs  []netip.Addr // at most one per family; if empty, those of the Node, once it has any
	Mode     string       // nftables, which is the default, iptables or userspace

	ClusterCIDRs      []netip.Prefix // the pod CIDRs of all nodes
	NodePortAddresses []netip.Prefix // the addresses at which node ports answer; NodeIPs if empty
	MasqueradeAll     bool
	MasqueradeBit     uint

	// MinSyncPeriod is the least time between two syncs; a change after that time is synced at once. If a sync takes long, the next one waits
	// five times as long as it took. SyncPeriod is how often the kernel's rules are checked. If zero, both have defaults.
	MinSyncPeriod, SyncPeriod time.Duration

	// HealthzAddress serves /healthz and /livez, MetricsAddress serves /metrics and /proxyMode; each is not served if empty.
	HealthzAddress, MetricsAddress string

	// Standalone says that the objects of Client's informers are shared with nobody in this process, so that unused fields may be removed.
	Standalone bool

	// Programmed, if not nil, is called for each Service and EndpointSlice whose change is in effect, with the times at which it was observed
	// and at which it came into effect. It must not block. It is not called for objects that existed at the start.
	Programmed func(object metav1.Object, seen, done time.Time)

	Log *slog.Logger
}

const (
	defaultMinSync   = 100 * time.Millisecond
	defaultSync      = 30 * time.Second
	minRetryInterval = time.Second
	maxUnreported    = 1000 // bounds the changes that wait to be reported to Programmed
	restFactor       = 5    // a sync is followed by a pause of this many times its duration
	maxSyncInterval  = 10 * time.Second
)

// Proxy is the service proxy of this node.
type Proxy struct {
	o        Options
	mode     model.Mode
	metrics  *metrics
	health   health.Proxy
	checks   health.Services
	recorder record.EventRecorder

	mu         sync.Mutex
	tracker    *model.Tracker
	unreported []observedChange // changes that are not in effect yet
	noLocal    [2]int           // the number of Ports whose internal, and external, traffic is dropped for want of local endpoints
	wake       chan struct{}
}

// observedChange is a change of an object that is reported to Programmed once it is in effect.
type observedChange struct {
	object     metav1.Object
	observedAt time.Time
}

// New returns a Proxy. It changes nothing on the node: Run does.
func New(o Options) (*Proxy, error) {
	o.Mode, o.MinSyncPeriod, o.SyncPeriod = cmp.Or(o.Mode, "nftables"), cmp.Or(o.MinSyncPeriod, defaultMinSync), cmp.Or(o.SyncPeriod, defaultSync)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Client == nil || o.NodeName == "" {
		return nil, errors.New("the service proxy needs a client and the name of its node")
	}
	if err := checkMode(o.Mode); err != nil {
		return nil, err
	}
	if err := checkRanges(o); err != nil {
		return nil, err
	}
	p := &Proxy{o: o, metrics: newMetrics(), wake: make(chan struct{}, 1)}
	p.checks.Healthy = p.health.Healthy
	p.checks.ListenFailed = p.checkFailed
	return p, nil
}

func checkRanges(o Options) error {
	for _, p := range append(append([]netip.Prefix{}, o.ClusterCIDRs...), o.NodePortAddresses...) {
		if !p.IsValid() {
			return errors.New("the service proxy was given an invalid address range: check the cluster CIDRs and the node port addresses")
		}
	}
	seen := map[model.Family]netip.Addr{}
	for _, a := range o.NodeIPs {
		if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() {
			return fmt.Errorf("%s cannot be a node's address for the service proxy", a)
		}
		if other, ok := seen[model.FamilyOf(a)]; ok {
			return fmt.Errorf("the node's addresses %s and %s are of the same family", other, a)
		}
		seen[model.FamilyOf(a)] = a
	}
	return nil
}

// Metrics returns the proxy's metrics.
func (p *Proxy) Metrics() prometheus.Gatherer { return p.metrics.registry }

// Run serves until ctx ends. The kernel's rules stay.
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
	p.o.Log.Info("service proxy started", "mode", p.o.Mode, "node", p.o.NodeName)
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

// loop syncs changes as they come, with a back-off after failures.
func (p *Proxy) loop(ctx context.Context) {
	check := time.NewTicker(p.o.SyncPeriod)
	defer check.Stop()
	retry := minRetryInterval
	for first := true; ; {
		took, err := p.sync(ctx)
		rest := min(max(p.o.MinSyncPeriod, restFactor*took), max(maxSyncInterval, p.o.MinSyncPeriod))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.o.Log.Error("failed to sync service rules", "error", err, "retry", retry)
			rest, retry = retry, min(2*retry, p.o.SyncPeriod)
			p.signal()
		default:
			retry = minRetryInterval
			if first {
				first = false
				if err := cleanOthers(p.o.Mode); err != nil {
					p.o.Log.Warn("failed to remove the rules of another service proxy mode", "error", err)
				}
			}
		}
		if !sleep(ctx, rest) || !p.await(ctx, check.C) {
			return
		}
	}
}

// await waits until there are changes, or until a check finds that somebody removed the rules. It reports false when ctx ends.
func (p *Proxy) await(ctx context.Context, check <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.wake:
			return true
		case <-check:
			intact, err := p.mode.Intact(ctx)
			if err != nil {
				p.o.Log.Warn("failed to check the service rules", "error", err)
				continue
			}
			if !intact {
				p.o.Log.Warn("service rules were removed by somebody else, writing them again")
				p.mu.Lock()
				p.tracker.ResyncAll()
				p.mu.Unlock()
				return true
			}
		}
	}
}

// sync brings the pending changes into effect, and returns how long it took.
func (p *Proxy) sync(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	p.mu.Lock()
	observed := p.unreported
	p.unreported = nil
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
		p.tracker.ResyncAll()
		if p.unreported = append(observed, p.unreported...); len(p.unreported) > maxUnreported {
			p.unreported = p.unreported[:maxUnreported]
		}
		p.mu.Unlock()
		return time.Since(start), err
	}
	done := time.Now()
	p.health.Updated(upTo)
	p.observe(state, changes, start, done)
	p.report(observed, done)
	p.checks.Sync(checks)
	if p.mode.FlowsInKernel() {
		n, err := conntrack.DeleteStale(state, changes)
		p.metrics.flows.Add(float64(n))
		if err != nil { // not retried before the next change: such entries expire when their clients pause
			p.o.Log.Warn("failed to delete stale UDP conntrack entries", "error", err)
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
	p.countNoLocal(state, changes)
	if !changes.All {
		p.metrics.partial.Observe(seconds)
		return
	}
	p.metrics.full.Observe(seconds)
	p.o.Log.Info("synced all service rules", "ports", len(state.Ports), "took", done.Sub(start).Round(time.Millisecond))
}

// report measures changes that are in effect, and calls Programmed for them.
func (p *Proxy) report(list []observedChange, done time.Time) {
	for _, w := range list {
		if at, err := time.Parse(time.RFC3339Nano, w.object.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime]); err == nil {
			p.metrics.program.Observe(done.Sub(at).Seconds())
		}
		if p.o.Programmed != nil {
			p.o.Programmed(w.object, w.observedAt, done)
		}
	}
}

func (p *Proxy) checkFailed(service types.NamespacedName, port uint16, err error) {
	p.o.Log.Warn("failed to listen on the health check node port of a service", "service", service, "port", port, "error", err)
	p.recorder.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name},
		corev1.EventTypeWarning, "FailedToStartServiceHealthcheck", "node %s failed to start healthcheck %q on port %d: %v", p.o.NodeName, service, port, err)
}

// signal wakes the loop.
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
