package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	netutils "k8s.io/utils/net"

	"skiff/internal/apiserver/aggregation"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/conversion"
	"skiff/internal/apiserver/crd"
	"skiff/internal/apiserver/encryption"
	flowconfig "skiff/internal/apiserver/flowcontrol/config"
	"skiff/internal/apiserver/front"
	"skiff/internal/apiserver/inprocess"
	"skiff/internal/apiserver/metrics"
	"skiff/internal/apiserver/nonresource"
	"skiff/internal/apiserver/openapi"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/subresources"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
	catalogmetrics "skiff/internal/catalog/metrics"
	"skiff/internal/client"
	"skiff/internal/usage"
)

// Server is an API server. It is an http.Handler.
type Server struct {
	opts         Options
	front        *front.Front
	nonResource  *nonresource.Handler
	openAPI      *openapi.Handler
	feed         *cache.Feed
	encryption   *encryption.Encryption // nil if nothing is encrypted
	api          *verbs.API
	loopback     *loopback
	identity     identity
	custom       *customResources
	definitions  *crd.Definitions
	aggregation  *aggregation.Aggregation
	meter        *usage.Meter
	fairness     *flowconfig.Loop // nil without priority and fairness
	publishing   sync.Mutex       // held while what discovery says is replaced
	shuttingDown atomic.Bool      // set by Leave: /readyz fails
	stopping     context.Context
	stop         context.CancelFunc
	rewrite      chan struct{}         // has a value if the configuration of encryption has changed since Secrets were rewritten
	startFailure atomic.Pointer[error] // why the server will never be ready
	late         lateInitializers

	// background counts the goroutines that run beside requests; Close waits for them.
	background sync.WaitGroup
}

// New starts a server on a store. Until WaitReady returns it answers requests for resources with 503.
func New(opts Options) (*Server, error) {
	opts.complete()
	if err := opts.Front.Check(); err != nil {
		return nil, err
	}
	s := &Server{opts: opts, rewrite: make(chan struct{}, 1)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.late = lateInitializers{report: s.tellLate, stop: s.stopping}
	s.api = &verbs.API{Handlers: map[verbs.HandlerKey]verbs.Handler{}, Metrics: metrics.New(versionInfo()), MinWatch: opts.MinWatch,
		Shared: response.Shared{Stopping: s.stopping}}
	infos := slices.Concat(all.Resources(), all.Former())
	if opts.ResourceMetrics {
		infos = append(infos, catalogmetrics.Resources()...)
	}
	if err := s.addEncryption(); err != nil {
		s.stop()
		return nil, err
	}
	s.feed = cache.NewFeed(opts.Store, s.kinds(infos), cache.Options{Root: s.root(), Log: opts.Log, GuardShared: opts.GuardShared, Observe: s.observe})
	if s.encryption != nil {
		s.encryption.Run()
	}
	s.api.Replace(&verbs.Served{Infos: infos, Endpoints: s.endpoints(infos)})
	s.loopback = s.newLoopback()
	webhooks := conversion.New(conversion.Options{Store: s.loopback, Dial: opts.Dial, Metrics: s.api.Metrics.Registry, Journey: opts.Journey,
		Stopping: s.stopping, Log: opts.Log})
	s.custom = newCustomResources(s)
	s.definitions = crd.New(s.stopping, s.loopback, s.custom, webhooks.Converter, opts.Log)
	s.aggregation = s.newAggregation()
	err := errors.Join(s.addIdentity(), s.addServices())
	if err == nil {
		s.addHandlers()
		err = s.addFront()
	}
	if err == nil {
		s.describeInitializers()
		s.describeMetrics()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.background.Go(s.begin)
	return s, nil
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.front.ServeHTTP(w, r) }

// As returns the server as a component of this process reaches it as a user: see client.ForServer.
func (s *Server) As(user *authn.User) client.View {
	return (&inprocess.Server{Handler: s, API: s.api, Journey: s.opts.Journey, Aggregated: s.aggregation.Serves}).As(user)
}

// CheckShared checks at once whether somebody has changed a shared object, and calls Options.GuardShared if so. Objects are also checked when they are
// replaced and when the server is closed.
func (s *Server) CheckShared() { s.feed.CheckShared() }

// root returns what the keys of all objects begin with.
func (s *Server) root() string { return s.opts.EtcdPrefix + "/" }

// kinds returns the kinds of the caches that resources need.
func (s *Server) kinds(infos []*catalog.Info) (kinds []cache.Kind) {
	for _, info := range infos {
		if info.Stored == info && !info.Virtual {
			kinds = append(kinds, registry.Kind(info, s.registryOptions()))
		}
	}
	return kinds
}

func (s *Server) registryOptions() registry.Options {
	return registry.Options{Store: s.opts.Store, Feed: s.feed, Root: s.root(), AsJSON: s.opts.StorageJSON, TTL: s.opts.EventTTL, Encryption: s.encryption}
}

// endpoints makes the endpoints of resources, whose caches must exist.
func (s *Server) endpoints(infos []*catalog.Info) map[schema.GroupVersionResource]*verbs.Endpoint {
	endpoints := make(map[schema.GroupVersionResource]*verbs.Endpoint, len(infos))
	opts := s.registryOptions()
	for _, info := range infos {
		var reg *registry.Registry
		if !info.Virtual {
			// A view has a registry of its own: it has the same objects, but may have other hooks.
			reg = registry.New(info.Stored, opts)
		}
		hot := s.feed.Hot()
		if !info.Virtual && info.Stored.Uncached {
			hot = nil // each read makes a new item, so that keeping encoded forms with it is of no use
		}
		endpoints[info.GVR] = verbs.NewEndpoint(info, reg, hot)
	}
	for _, a := range infos {
		for _, b := range infos {
			if a != b && sameObjects(a, b) {
				endpoints[a.GVR].Related = append(endpoints[a.GVR].Related, b)
			}
		}
	}
	return endpoints
}

// sameObjects reports whether two resources serve the same objects: in another group, or in another version of a custom resource.
func sameObjects(a, b *catalog.Info) bool {
	return a.Stored.GVR == b.Stored.GVR || a.JSONOnly && b.JSONOnly && a.StorageName == b.StorageName
}

// addHandlers adds the handlers of resources and subresources that no generic verb serves.
func (s *Server) addHandlers() {
	family := discoveryv1.AddressTypeIPv4
	if netutils.IsIPv6CIDRString(s.opts.ServiceCIDRs[0]) {
		family = discoveryv1.AddressTypeIPv6
	}
	s.meter = subresources.Register(subresources.Options{API: s.api, Authentication: s.identity.authentication, EtcdPrefix: s.opts.EtcdPrefix,
		StoreHealthy: s.storeHealthy(s.opts.StoreHealthTimeout), Dial: s.opts.Dial, KubeletTLS: s.opts.KubeletTLS, KubeletAddresses: s.opts.KubeletAddresses, AddressType: family,
		ResourceMetrics: s.opts.ResourceMetrics, LocalUsage: s.opts.LocalUsage, Measured: s.remember, Log: s.opts.Log})
}

// addFront puts the filters in front of the handlers of resources and other paths.
func (s *Server) addFront() (err error) {
	flow, fair := s.newFlowControl(), !s.opts.NoFairness
	s.openAPI = openapi.New(time.Now)
	s.nonResource = nonresource.New(nonresource.Options{API: s.api, Build: versionInfo(), Address: s.address(), Flags: s.opts.Flags, Profiling: !s.opts.NoProfiling,
		OpenAPI: s.openAPI, Flow: flow, Fair: fair, TokenDocuments: s.identity.authentication.Discovery, Journey: s.opts.Journey, Tunnel: s.opts.Tunnel,
		StoreHealthy: s.storeHealthy(s.opts.StoreHealthTimeout), StoreReady: s.storeHealthy(s.opts.StoreReadyTimeout), CachesSynced: s.feed.Synced(), KMSProviders: s.kmsProviders(),
		ShuttingDown: func() bool { return s.shuttingDown.Load() || s.stopping.Err() != nil }, Log: s.opts.Log})
	s.front, err = front.New(front.Options{Headers: s.opts.Front, API: s.api, NonResource: s.nonResource, Aggregation: s.aggregation, Authentication: s.identity.authentication, Flow: flow, Fair: fair,
		RequestTimeout: s.opts.RequestTimeout, Journey: s.opts.Journey, Seen: s.opts.Seen, Log: s.opts.Log})
	if err == nil {
		s.background.Go(func() { s.front.Run(s.stopping) })
	}
	return err
}

// storeHealthy returns a check of whether the store can be used, which waits no longer than timeout for the store.
func (s *Server) storeHealthy(timeout time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if s.opts.StoreHealthy == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return s.opts.StoreHealthy(ctx)
	}
}

// address returns where the server says it can be reached.
func (s *Server) address() string {
	return net.JoinHostPort(cmp.Or(s.opts.ExternalHost, s.opts.AdvertiseAddress), strconv.Itoa(s.opts.Port))
}

// AddMetrics adds the metrics of a component in this process to /metrics.
func (s *Server) AddMetrics(g prometheus.Gatherer) {
	s.api.Metrics.Add(g)
}

// begin waits until the caches are synced, creates the objects that every cluster has, and makes the server ready.
func (s *Server) begin() {
	select {
	case <-s.feed.Synced():
	case <-s.stopping.Done():
		return
	}
	if !s.checkReadable() {
		return
	}
	s.loopback.begin(s.stopping)
	s.bootstrap(s.stopping)
	s.resumeInitialization()
	s.reconcileRoles(s.stopping)
	s.publishAuthenticationTrust(s.stopping)
	if err := s.definitions.Start(s.stopping); err != nil && s.stopping.Err() == nil {
		s.opts.Log.Error("failed to serve the custom resources that are established", "err", err)
	}
	if !s.checkReadable() {
		return
	}
	s.background.Go(func() { s.definitions.Run(s.stopping) })
	s.aggregation.SetServed(s.api.Served().Infos)
	s.loopback.waitForFollowers(s.stopping) // so that the first requests are authorized by the roles that were just written
	s.beginFairness()
	s.api.Ready.Store(s.stopping.Err() == nil)
	s.background.Go(func() { s.aggregation.Run(s.stopping) })
	if s.encryption != nil && s.opts.RewriteSecrets {
		s.background.Go(func() { s.rewriteSecrets(s.stopping) })
	}
	if s.opts.UsageHistory != nil {
		s.background.Go(func() { s.keepHistory(s.stopping) })
	}
	if s.opts.StoreUsage != nil {
		s.watchUsage(s.stopping, cmp.Or(s.opts.UsageEvery, usageEvery))
	}
}

// WaitReady waits until the server answers requests for resources. It returns an error if that will never be.
func (s *Server) WaitReady(ctx context.Context) error {
	for !s.api.Ready.Load() {
		if failure := s.startFailure.Load(); failure != nil {
			return *failure
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.stopping.Done():
			return fmt.Errorf("the server was stopped before it was ready")
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// Leave makes /readyz fail while the server goes on serving, so that load balancers send clients elsewhere before it stops.
func (s *Server) Leave() { s.shuttingDown.Store(true) }

// Drain makes the server not ready and ends its watches, so that its listener can be shut down.
func (s *Server) Drain() {
	s.api.Ready.Store(false)
	s.stop()
}

// Close stops the server and waits for its goroutines. It does not close the store.
func (s *Server) Close() {
	s.Drain()
	s.background.Wait()
	s.late.close()
	s.feed.Close()
	if s.encryption != nil {
		s.encryption.Close()
	}
}

// observe records in journeys that the caches have received a change.
func (s *Server) observe(c *cache.Cache, change *cache.Change) {
	s.opts.Journey.Delivered(change.Item.UID, change.Item.Revision)
	if change.Initializing() {
		s.late.observe(c.Kind.Name, change)
	}
}
