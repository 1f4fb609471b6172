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
	// DefaultPort is where servers listen on their nodes. The kube-dns Service leads from port 53 to it.
	DefaultPort = 10053
	// DefaultDomain is the domain of clusters.
	DefaultDomain = "cluster.local"
	// defaultTTL is for how many seconds clients may keep what they are told, as kubeadm has CoreDNS say.
	defaultTTL = 30
)

// Options of a server.
type Options struct {
	// Client reaches the API. It must be allowed to list and watch Services, EndpointSlices and Namespaces.
	Client *client.Client
	// Informers, if not nil, are used instead of informers of the server's own, to share what they hold with others in the process.
	Informers informers.SharedInformerFactory
	NodeName  string
	Domain    string // of the cluster: cluster.local
	// Listen are the node's own addresses, with a port each.
	Listen []netip.AddrPort
	// PodCIDRs are the ranges of pod addresses of all nodes. Queries from elsewhere are dropped, but for the node's own.
	PodCIDRs []netip.Prefix
	// ResolvConf is the file that says whom to ask about names outside the cluster. It is read again when it changes.
	ResolvConf string
	// Upstreams are asked before those that ResolvConf names.
	Upstreams []netip.AddrPort
	TTL       uint32 // of the cluster's records, in seconds: 30
	Log       *slog.Logger
}

// Server is a node's name server.
type Server struct {
	options      Options
	ownInformers bool
	zone         *zone
	forward      *forwarder
	sources      *sources
	synced       []cache.DoneChecker
	metrics      *metrics
	log          *slog.Logger

	tasks   sync.WaitGroup // queries that wait for others
	clients clients        // over TCP
	idle    time.Duration  // after which they are cut off
	bound   atomic.Pointer[[]netip.AddrPort]
	ready   chan struct{} // closed when it answers
}

// New prepares a server.
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
		return nil, errors.New("the name server has no address to listen on")
	}
	var own []netip.Addr
	for _, l := range o.Listen {
		if !l.Addr().IsValid() {
			return nil, fmt.Errorf("the name server cannot listen on %v", l)
		}
		own = append(own, l.Addr().Unmap())
	}
	ownInformers := o.Informers == nil
	if ownInformers {
		if o.Client == nil {
			return nil, errors.New("the name server has no client to reach the API with")
		}
		o.Informers = o.Client.Informers(client.InformerOptions{})
	}
	s := &Server{options: o, ownInformers: ownInformers, zone: newZone(domain, o.TTL, own), log: o.Log, ready: make(chan struct{}), idle: idleTime}
	s.forward = newForwarder(&resolvers{file: o.ResolvConf, fixed: slices.Clone(o.Upstreams), except: isSelf(o.Listen, s.zone)}, o.Log)
	s.sources = &sources{ranges: slices.Clone(o.PodCIDRs), fixed: own, list: interfaceAddresses, log: o.Log}
	s.metrics = newMetrics(s, o.Domain)
	if s.synced, err = s.zone.follow(o.Informers); err != nil {
		return nil, err
	}
	return s, nil
}

// Run serves until ctx ends and what it began is over.
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
		counts := s.metrics.more()
		serve(func() error { return s.serveUDP(ctx, conn, counts) })
	}
	counts := s.metrics.more()
	for _, listener := range l.tcp {
		serve(func() error { return s.serveTCP(ctx, listener, counts) })
	}
	s.log.Info("the name server listens", "addresses", l.addresses, "domain", s.options.Domain)
	serving.Go(func() {
		if cache.WaitFor(ctx, "", s.synced...) {
			s.zone.synced.Store(true)
			s.bound.Store(&l.addresses)
			close(s.ready)
		}
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	l.close()
	s.clients.end()
	serving.Wait()
	s.tasks.Wait()
	if s.ownInformers {
		s.options.Informers.Shutdown()
	}
	if err != nil {
		return fmt.Errorf("the name server: %w", err)
	}
	return nil
}

// WaitReady returns when the server answers questions about the cluster.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ready:
		return nil
	}
}

// Addresses are where it listens, once it is ready.
func (s *Server) Addresses() []netip.AddrPort {
	if l := s.bound.Load(); l != nil {
		return *l
	}
	return nil
}

// Metrics are what it counts, under the names that CoreDNS uses.
func (s *Server) Metrics() prometheus.Gatherer { return s.metrics.registry }

// later answers a query that others must be asked about, and calls send with the answer. It does not wait for that.
func (s *Server) later(ctx context.Context, q *query, todo *task, send func(msg []byte), udp bool, m *counts) {
	select {
	case s.forward.places <- struct{}{}:
	default:
		s.forward.counts.refused.Add(1)
		send(m.answered(q, zoneElsewhere, udp, q.refuse(nil, rcodeRefused)))
		return
	}
	one := *q
	one.question = slices.Clone(q.question)
	one.name = one.nameBuffer[:len(q.name)]
	s.tasks.Go(func() {
		defer func() { <-s.forward.places }()
		var msg []byte
		if todo.elsewhere != "" {
			msg = m.answered(&one, zoneCluster, udp, s.alias(ctx, &one, todo.elsewhere, nil))
		} else {
			msg = m.answered(&one, zoneElsewhere, udp, s.forward.answer(ctx, &one, nil))
		}
		send(msg)
	})
}
