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
	// defaultResync is how often it is looked whether the kernel still has what it was given.
	defaultResync = 30 * time.Second
	// After a failure it is tried again, soon at first.
	firstRetry, lastRetry = 100 * time.Millisecond, 10 * time.Second
	// settleTime is the least time between two looks at the kernel because it said that links changed: our own changes are among them.
	settleTime = 50 * time.Millisecond
)

// Options say which node this is.
type Options struct {
	// Client acts for the node itself: it annotates its own Node and sets a condition of it.
	Client *client.Client
	// Nodes follows all Nodes; Client if nil: the role skiff:node-network lets nodes see each other.
	Nodes    *client.Client
	NodeName string
	// NodeIPs are by which others reach this node, until its Node says so itself.
	NodeIPs []netip.Addr
	// Backend is VXLAN, HostGW, UDP or Auto; VXLAN if empty.
	Backend string
	// ClusterCIDRs are what all ranges of pod addresses are in. Nodes with others are left out.
	ClusterCIDRs []netip.Prefix
	// VNI is the number of the VXLAN network, Port the UDP port of the backend; 0 is Flannel's. All nodes must have the same.
	VNI, Port int
	// MTUChanged, if not nil, is told how large packets of pods may be, at first and when that changes. It must not block.
	MTUChanged func(mtu int)
	// Resync is how often it is looked whether the kernel still has what it was given; 30 s if 0.
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

// New checks the options. It touches nothing.
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

// Synced is closed when the kernel has for the first time all that Nodes say.
func (o *Overlay) Synced() <-chan struct{} { return o.synced }

// MTU is how large packets of pods may be; 0 until it is known.
func (o *Overlay) MTU() int { return int(o.mtu.Load()) }

// Run follows Nodes until ctx ends, and leaves what it made. It works on the network of the thread that it is called on: whoever wants another than
// the process's locks a thread and changes it. It may be called once.
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
	told, err := informer.AddEventHandler(o.handler())
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitFor(ctx, "", told.HasSyncedChecker()) {
		return nil // nothing is taken from the kernel before it is known what belongs there
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

// loop brings the kernel to what Nodes say whenever they change, and looks at what it really has when it says that something changed, when something
// failed, and now and then.
func (o *Overlay) loop(ctx context.Context, k *kernel, p *publisher) error {
	f, err := follow(vxlanDevice, tunDevice)
	if err != nil {
		return fmt.Errorf("following the kernel's links: %w", err)
	}
	defer func() { f.close() }()
	state := &state{look: true}
	resync := time.NewTicker(o.options.Resync)
	defer resync.Stop()
	wait := firstRetry
	for ctx.Err() == nil {
		var again <-chan time.Time
		start := time.Now()
		err := o.sync(k, f, p, state)
		o.metrics.synced(start, err)
		if err != nil {
			again = time.After(wait)
			wait = min(2*wait, lastRetry)
			state.look = true
		} else {
			wait = firstRetry
			o.once.Do(func() { close(o.synced) })
		}
		state.say(o.options.Log, err)
		select {
		case <-ctx.Done():
		case <-o.nodes.changed:
		case <-again:
		case <-f.news:
			state.look = true
			pause(ctx, settleTime)
		case <-f.lost:
			f.close()
			pause(ctx, firstRetry)
			if f, err = follow(vxlanDevice, tunDevice); err != nil {
				return fmt.Errorf("following the kernel's links: %w", err)
			}
			state.look = true
		case <-resync.C:
			state.look = true
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

// state is what a pass hands to the next one.
type state struct {
	look     bool // at what the kernel really has
	self     *node
	underlay underlay
	told     map[problem]bool
	failure  string // that was told of
}

// say tells of a failure once, not at every try, and when it is over.
func (s *state) say(log *slog.Logger, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == s.failure:
	case err != nil:
		log.Warn("the overlay is not as it should be; trying again and again", "error", err)
	default:
		log.Info("the overlay is as it should be again")
	}
	s.failure = text
}

// sync is one pass.
func (o *Overlay) sync(k *kernel, f *follower, p *publisher, s *state) error {
	self, others := o.nodes.all(o.options.NodeName)
	look := s.look || (self == nil) != (s.self == nil) || self != nil && !self.equal(s.self)
	if look {
		addresses := o.options.NodeIPs
		if self != nil && len(self.addresses) > 0 {
			addresses = self.addresses
		}
		defer func() {
			f.watch([]int{s.underlay.outer.link, linkOf(s.underlay.ipv4), linkOf(s.underlay.ipv6), k.device}, addresses)
		}()
		var err error
		if s.underlay, err = k.underlay(addresses); err != nil {
			return err
		}
	}
	wanted := o.settings.decide(s.underlay, self, others)
	o.report(p, s, wanted.problems)
	if look {
		if err := o.prepare(k, s.underlay, wanted, self); err != nil {
			return err
		}
	}
	err := k.apply(wanted)
	if look && err == nil {
		err = k.removeUnused() // no route needs it any more
	}
	o.metrics.peers.Set(float64(wanted.peers))
	if err != nil {
		return err
	}
	s.look, s.self = false, self
	p.set(self)
	return nil
}

// prepare sees to our interface and looks at what the kernel has of ours.
func (o *Overlay) prepare(k *kernel, u underlay, wanted plan, self *node) error {
	if wanted.mtu < leastMTU {
		return fmt.Errorf("the link with this node's address %s carries %d bytes: too few for pods' packets", u.outer.address, u.outer.mtu)
	}
	ranges := o.options.ClusterCIDRs
	if self != nil {
		ranges = append(slices.Clone(ranges), self.ranges...)
	}
	if err := k.forwarding(u, ranges); err != nil {
		return err
	}
	if err := k.guard(wanted.sources); err != nil { // before anything can come in
		return err
	}
	if err := k.ensureDevice(u, wanted, self); err != nil {
		return err
	}
	if old := o.mtu.Swap(int64(wanted.mtu)); old != int64(wanted.mtu) {
		o.metrics.mtu.Set(float64(wanted.mtu))
		o.options.Log.Info("overlay", "backend", o.settings.backend, "address", u.outer.address, "mtu", wanted.mtu)
		if o.options.MTUChanged != nil {
			o.options.MTUChanged(wanted.mtu)
		}
	}
	return k.look()
}

func linkOf(p *place) int {
	if p == nil {
		return 0
	}
	return p.link
}

// report tells of problems that were not there before, once.
func (o *Overlay) report(p *publisher, s *state, problems []problem) {
	o.metrics.problems.Set(float64(len(problems)))
	now := make(map[problem]bool, len(problems))
	for _, each := range problems {
		now[each] = true
		if s.told[each] {
			continue
		}
		o.options.Log.Error("overlay: "+each.text, "node", each.node)
		if each.node == o.options.NodeName || each.other == o.options.NodeName {
			p.problem(each) // of all nodes that see it, those say it to everybody that it is about
		}
	}
	for each := range s.told {
		if !now[each] {
			o.options.Log.Info("overlay: no longer so: "+each.text, "node", each.node)
		}
	}
	s.told = now
}
