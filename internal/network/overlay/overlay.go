package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
)

const (
	// defaultResync is the resync interval if Options.Resync is 0.
	defaultResync = 30 * time.Second
	// After a failure the back-off starts with minRetryInterval and doubles up to maxRetryInterval.
	minRetryInterval, maxRetryInterval = 100 * time.Millisecond, 10 * time.Second
	// linkEventInterval is the least time between two resyncs because of link events: the overlay's own changes cause such events too.
	linkEventInterval = 50 * time.Millisecond
)

// Options configures an Overlay.
type Options struct {
	// Client has the node's identity: it annotates the node's own Node and sets its NetworkUnavailable condition.
	Client *client.Client
	// Nodes lists and watches all Nodes; Client if nil, as the role skiff:node-network lets nodes see each other.
	Nodes    *client.Client
	NodeName string
	// NodeIPs lists the addresses of this node until its Node has addresses in its status.
	NodeIPs []netip.Addr
	// Backend is VXLAN, HostGW, UDP or Auto; VXLAN if empty.
	Backend string
	// ClusterCIDRs contain all pod CIDRs. A pod CIDR outside them is reported as a problem and not routed.
	ClusterCIDRs []netip.Prefix
	// VNI is the VXLAN network identifier, Port the UDP port of the backend; Flannel's if 0. All nodes must use the same.
	VNI, Port int
	// MTUChanged, if not nil, is called with the MTU of pods, at first and when it changes. It must not block.
	MTUChanged func(mtu int)
	// Resync is how often the kernel's state is read again and compared; 30 s if 0.
	Resync time.Duration
	Log    *slog.Logger
}

// Overlay connects this node's pods with those of other nodes.
type Overlay struct {
	options  Options
	settings settings
	nodes    *nodes
	metrics  *metrics
	synced   chan struct{}
	once     sync.Once
	mtu      atomic.Int64
}

// New returns an Overlay, or an error if an option is invalid. It changes nothing in the kernel: Run does.
func New(o Options) (*Overlay, error) {
	if o.Backend == "" {
		o.Backend = VXLAN
	}
	switch {
	case !slices.Contains([]string{VXLAN, HostGW, UDP, Auto}, o.Backend):
		return nil, fmt.Errorf("overlay backend %q: it is one of %s, %s, %s and %s", o.Backend, VXLAN, HostGW, UDP, Auto)
	case o.Client == nil || o.NodeName == "":
		return nil, errors.New("the overlay needs a client and the name of its node")
	case o.VNI < 0 || o.VNI >= 1<<24:
		return nil, fmt.Errorf("VXLAN network %d: it is from 1 to 16777215", o.VNI)
	case o.Port < 0 || o.Port >= 1<<16:
		return nil, fmt.Errorf("overlay port %d: it is from 1 to 65535", o.Port)
	}
	if o.Nodes == nil {
		o.Nodes = o.Client
	}
	if o.Resync == 0 {
		o.Resync = defaultResync
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Overlay{
		options: o, settings: settings{name: o.NodeName, backend: o.Backend, clusterCIDRs: o.ClusterCIDRs},
		nodes: newNodes(), metrics: newMetrics(), synced: make(chan struct{}),
	}, nil
}

// Synced returns a channel that is closed when the kernel was programmed from all Nodes for the first time.
func (o *Overlay) Synced() <-chan struct{} { return o.synced }

// MTU returns the MTU of pods; 0 until it is known.
func (o *Overlay) MTU() int { return int(o.mtu.Load()) }

// Run programs the kernel from Nodes until ctx ends, and leaves what it programmed. It works in the network namespace of the calling thread:
// a caller that wants another one than the process's locks the thread and changes its namespace. It may be called once.
func (o *Overlay) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	k, err := openKernel(o.settings, o.options, o.metrics.changed, o.metrics.tunnel)
	if err != nil {
		return err
	}
	defer k.close()

	factory := o.options.Nodes.Informers(client.InformerOptions{})
	informer := factory.Core().V1().Nodes().Informer()
	registration, err := informer.AddEventHandler(o.handler())
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nil // nothing is removed from the kernel before all Nodes are known
	}
	p := newPublisher(o.options, o.settings)
	wg.Go(func() { p.run(ctx) })
	return o.loop(ctx, k, p)
}

func (o *Overlay) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.nodes.set(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { o.nodes.set(object.(*corev1.Node)) },
		DeleteFunc: func(object any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				o.nodes.remove(name)
			}
		},
	}
}

// loop reconciles the kernel whenever Nodes change. It reads the kernel's state again when links changed, after a failure, and at every resync.
func (o *Overlay) loop(ctx context.Context, k *kernel, p *publisher) error {
	f, err := watchLinks(vxlanDevice, tunDevice)
	if err != nil {
		return fmt.Errorf("following the kernel's links: %w", err)
	}
	defer func() { f.close() }()
	state := &state{resync: true}
	resync := time.NewTicker(o.options.Resync)
	defer resync.Stop()
	wait := minRetryInterval
	for ctx.Err() == nil {
		var again <-chan time.Time
		start := time.Now()
		err := o.sync(k, f, p, state)
		o.metrics.synced(start, err)
		if err != nil {
			again = time.After(wait)
			wait = min(2*wait, maxRetryInterval)
			state.resync = true
		} else {
			wait = minRetryInterval
			o.once.Do(func() { close(o.synced) })
		}
		state.logFailure(o.options.Log, err)
		select {
		case <-ctx.Done():
		case <-o.nodes.changed:
		case <-again:
		case <-f.events:
			state.resync = true
			pause(ctx, linkEventInterval)
		case <-f.lost:
			f.close()
			pause(ctx, minRetryInterval)
			if f, err = watchLinks(vxlanDevice, tunDevice); err != nil {
				return fmt.Errorf("following the kernel's links: %w", err)
			}
			state.resync = true
		case <-resync.C:
			state.resync = true
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// state is carried from one call of sync to the next.
type state struct {
	resync        bool // the next sync reads the kernel's state again
	self          *node
	underlay      underlay
	reported      map[problem]bool // the problems that were reported and persist
	loggedFailure string           // the last failure that was logged; empty after a success
}

// logFailure logs a failure once, not at every retry, and logs when it has passed.
func (s *state) logFailure(log *slog.Logger, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == s.loggedFailure:
	case err != nil:
		log.Warn("failed to program the overlay network, retrying", "error", err)
	default:
		log.Info("overlay network is programmed again after a failure")
	}
	s.loggedFailure = text
}

// sync reconciles the kernel with the Nodes once.
func (o *Overlay) sync(k *kernel, f *linkWatcher, p *publisher, s *state) error {
	self, others := o.nodes.all(o.options.NodeName)
	resync := s.resync || (self == nil) != (s.self == nil) || self != nil && !self.equal(s.self)
	if resync {
		addresses := o.options.NodeIPs
		if self != nil && len(self.addresses) > 0 {
			addresses = self.addresses
		}
		defer func() {
			f.filter([]int{s.underlay.outer.link, linkOf(s.underlay.ipv4), linkOf(s.underlay.ipv6), k.device}, addresses)
		}()
		var err error
		if s.underlay, err = k.underlay(addresses); err != nil {
			return err
		}
	}
	wanted := o.settings.decide(s.underlay, self, others)
	o.report(p, s, wanted.problems)
	if resync {
		if err := o.prepare(k, s.underlay, wanted, self); err != nil {
			return err
		}
	}
	err := k.apply(wanted)
	if resync && err == nil {
		err = k.removeUnused() // by now no route needs it
	}
	o.metrics.peers.Set(float64(wanted.peers))
	if err != nil {
		return err
	}
	s.resync, s.self = false, self
	p.set(self)
	return nil
}

// prepare enables forwarding, writes the guard, creates and configures the overlay's interface, and reads the kernel's current state.
func (o *Overlay) prepare(k *kernel, u underlay, wanted plan, self *node) error {
	if wanted.mtu < minMTU {
		return fmt.Errorf("the link with this node's address %s carries %d bytes: too few for pods' packets", u.outer.address, u.outer.mtu)
	}
	ranges := o.options.ClusterCIDRs
	if self != nil {
		ranges = append(slices.Clone(ranges), self.ranges...)
	}
	if err := k.enableForwarding(u, ranges); err != nil {
		return err
	}
	if err := k.guard(wanted.sources); err != nil { // before the interface can receive a packet
		return err
	}
	if err := k.ensureDevice(u, wanted, self); err != nil {
		return err
	}
	if old := o.mtu.Swap(int64(wanted.mtu)); old != int64(wanted.mtu) {
		o.metrics.mtu.Set(float64(wanted.mtu))
		o.options.Log.Info("overlay network has a new MTU", "backend", o.settings.backend, "address", u.outer.address, "mtu", wanted.mtu)
		if o.options.MTUChanged != nil {
			o.options.MTUChanged(wanted.mtu)
		}
	}
	return k.readState()
}

func linkOf(p *localAddr) int {
	if p == nil {
		return 0
	}
	return p.link
}

// report logs new problems once, and those that have passed. Problems that concern this node also become Events.
func (o *Overlay) report(p *publisher, s *state, problems []problem) {
	o.metrics.problems.Set(float64(len(problems)))
	now := make(map[problem]bool, len(problems))
	for _, each := range problems {
		now[each] = true
		if s.reported[each] {
			continue
		}
		o.options.Log.Error("overlay: "+each.text, "node", each.node)
		if each.node == o.options.NodeName || each.other == o.options.NodeName {
			p.problem(each) // every node sees the problem: only those that it is about publish an Event
		}
	}
	for each := range s.reported {
		if !now[each] {
			o.options.Log.Info("overlay: no longer so: "+each.text, "node", each.node)
		}
	}
	s.reported = now
}
