package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
)

const (
	// DefaultPort is the port on which the server listens on every node. The kube-dns Service maps port 53 to it.
	DefaultPort = 10053
	// DefaultDomain is the cluster domain if Options.Domain is empty.
	DefaultDomain = "cluster.local"
	// defaultTTL is the TTL of the cluster's records in seconds, as kubeadm configures CoreDNS.
	defaultTTL = 30
)

// Options configures a Server.
type Options struct {
	// Client reaches the API. It must be allowed to list and watch Services, EndpointSlices and Namespaces.
	Client *client.Client
	// Informers, if not nil, is a factory shared with other parts of the process. If nil, the server starts its own from Client.
	Informers informers.SharedInformerFactory
	NodeName  string
	// Domain is the cluster domain; DefaultDomain if empty.
	Domain string
	// Listen lists the addresses and ports of the node that the server listens on.
	Listen []netip.AddrPort
	// PodCIDRs lists the pod CIDRs of all nodes. Queries from any other source but the node itself are dropped.
	PodCIDRs []netip.Prefix
	// ResolvConf is the path of the resolv.conf whose servers queries about names outside the cluster are forwarded to. It is reloaded when it changes.
	ResolvConf string
	// Upstreams lists servers that are tried before those of ResolvConf.
	Upstreams []netip.AddrPort
	// TTL is the TTL of the cluster's records in seconds; 30 if 0.
	TTL uint32
	Log *slog.Logger
}

// Server is the DNS server of one node.
type Server struct {
	options      Options
	ownInformers bool
	zone         *zone
	forward      *forwarder
	sources      *sources
	synced       []cache.DoneChecker
	metrics      *metrics
	log          *slog.Logger

	tasks       sync.WaitGroup // the goroutines of resolveAsync
	clients     clients        // the open TCP connections
	idleTimeout time.Duration  // closes a TCP connection that sends no query for this long
	boundAddrs  atomic.Pointer[[]netip.AddrPort]
	ready       chan struct{} // closed when queries about the cluster are answered
}

// New returns a Server that does not listen yet: Run does.
func New(o Options) (*Server, error) {
	o.Domain, o.TTL = cmp.Or(o.Domain, DefaultDomain), cmp.Or(o.TTL, defaultTTL)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	domain, err := encodeName(o.Domain)
	if err != nil || len(domain) == 1 {
		return nil, fmt.Errorf("the cluster's domain cannot be %q", o.Domain)
	}
	if len(o.Listen) == 0 {
		return nil, errors.New("the DNS server has no address to listen on")
	}
	var listenAddrs []netip.Addr
	for _, l := range o.Listen {
		if !l.Addr().IsValid() {
			return nil, fmt.Errorf("the DNS server cannot listen on %v", l)
		}
		listenAddrs = append(listenAddrs, l.Addr().Unmap())
	}
	ownInformers := o.Informers == nil
	if ownInformers {
		if o.Client == nil {
			return nil, errors.New("the DNS server has no client to reach the API with")
		}
		o.Informers = o.Client.Informers(client.InformerOptions{})
	}
	s := &Server{options: o, ownInformers: ownInformers, zone: newZone(domain, o.TTL, listenAddrs), log: o.Log, ready: make(chan struct{}), idleTimeout: tcpIdleTimeout}
	s.forward = newForwarder(&resolvers{file: o.ResolvConf, upstreams: slices.Clone(o.Upstreams), isSelf: isSelf(o.Listen, s.zone)}, o.Log)
	s.sources = &sources{podCIDRs: slices.Clone(o.PodCIDRs), listenAddrs: listenAddrs, listAddrs: interfaceAddresses, log: o.Log}
	s.metrics = newMetrics(s, o.Domain)
	if s.synced, err = s.zone.watch(o.Informers); err != nil {
		return nil, err
	}
	return s, nil
}

// Run serves until ctx ends, and returns when all its goroutines have ended.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.options.Informers.StartWithContext(ctx)
	l, err := s.listen(ctx)
	if err != nil || l == nil {
		return err
	}
	var serving sync.WaitGroup
	failed := make(chan error, len(l.udp)+len(l.tcp))
	serve := func(f func() error) {
		serving.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	for _, conn := range l.udp {
		counts := s.metrics.newCounts()
		serve(func() error { return s.serveUDP(ctx, conn, counts) })
	}
	counts := s.metrics.newCounts()
	for _, listener := range l.tcp {
		serve(func() error { return s.serveTCP(ctx, listener, counts) })
	}
	s.log.Info("DNS server listens", "addresses", l.addresses, "domain", s.options.Domain)
	serving.Go(func() {
		if cache.WaitFor(ctx, "", s.synced...) {
			s.zone.synced.Store(true)
			s.boundAddrs.Store(&l.addresses)
			close(s.ready)
		}
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	l.close()
	s.clients.closeAll()
	serving.Wait()
	s.tasks.Wait()
	if s.ownInformers {
		s.options.Informers.Shutdown()
	}
	if err != nil {
		return fmt.Errorf("the DNS server stopped: %w", err)
	}
	return nil
}

// WaitReady returns when the server answers queries about the cluster, or with the error of ctx.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ready:
		return nil
	}
}

// Addresses returns the addresses the server listens on; nil until it is ready.
func (s *Server) Addresses() []netip.AddrPort {
	if l := s.boundAddrs.Load(); l != nil {
		return *l
	}
	return nil
}

// Metrics returns the server's metrics, under the names that CoreDNS uses.
func (s *Server) Metrics() prometheus.Gatherer { return s.metrics.registry }

// resolveAsync answers a query for which upstream servers must be asked: it returns at once and calls send with the answer later. With
// maxForwards such queries in flight it sends REFUSED instead.
func (s *Server) resolveAsync(ctx context.Context, q *query, todo *task, send func(msg []byte), udp bool, m *counts) {
	select {
	case s.forward.slots <- struct{}{}:
	default:
		s.forward.counts.refused.Add(1)
		send(m.answered(q, zoneForwarded, udp, q.refuse(nil, rcodeRefused)))
		return
	}
	one := *q
	one.question = slices.Clone(q.question)
	one.name = one.nameBuffer[:len(q.name)]
	s.tasks.Go(func() {
		defer func() { <-s.forward.slots }()
		var msg []byte
		if todo.externalName != "" {
			msg = m.answered(&one, zoneCluster, udp, s.alias(ctx, &one, todo.externalName, nil))
		} else {
			msg = m.answered(&one, zoneForwarded, udp, s.forward.answer(ctx, &one, nil))
		}
		send(msg)
	})
}
