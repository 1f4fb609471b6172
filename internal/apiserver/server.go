package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	netutils "k8s.io/utils/net"

	"skiff/internal/apiserver/admission/defaulttolerationseconds"
	"skiff/internal/apiserver/authn"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authz"
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
	"skiff/internal/catalog/all"
	"skiff/internal/client"
	"skiff/internal/journey"
	"skiff/internal/store"
)

// Options of a server. Store is required; zero values of the rest are upstream's defaults.
type Options struct {
	Store store.Store
	// StoreHealthy says whether the store can be written to; nil means it always can.
	StoreHealthy func(context.Context) error
	// StoreUsage says how many bytes the store's database takes and holds, and how many it may hold (0 if that is not known); nil if
	// nothing of that is known.
	StoreUsage  func(context.Context) (StoreUsage, error)
	UsageEvery  time.Duration // between two looks at it: 30 s
	EtcdPrefix  string        // of all keys: /registry
	StorageJSON bool          // store readable JSON instead of protobuf
	EventTTL    time.Duration

	Authentication authnconfig.Options
	// AuthorizationModes are asked in order: AlwaysAllow if there are none.
	AuthorizationModes []string
	Authorizer         authz.Authorizer // in place of the modes
	// AggregateRoles has the server write the rules of cluster roles that gather those of others.
	AggregateRoles bool
	// EnableAdmission and DisableAdmission change which admission plugins are on.
	EnableAdmission, DisableAdmission []string
	// AdmissionConfigFile is the path of an AdmissionConfiguration for the plugins; empty if there is none.
	AdmissionConfigFile string

	ServiceCIDRs  []string // 10.43.0.0/16
	NodePortRange string   // 30000-32767
	// AdvertiseAddress and Port are where the service "kubernetes" leads to.
	AdvertiseAddress string
	Port             int
	// ExternalHost is what clients elsewhere call the server, if not by that address.
	ExternalHost string
	Front        FrontOptions

	// KubeletTLS is what kubelets are shown and how theirs is checked. It is called for each connection, as certificates are renewed. Without it
	// nothing is shown or checked.
	KubeletTLS func() (*tls.Config, error)
	// KubeletAddresses are the kinds of a node's addresses to try for its kubelet, in order.
	KubeletAddresses []corev1.NodeAddressType

	// Dial connects to kubelets, pods and services; directly if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Tunnel takes over the connection on which a node wants to be reached. Without it no node can be reached so.
	Tunnel func(w http.ResponseWriter, r *http.Request, node string)

	// MaxInFlight and MaxMutatingInFlight together are how many requests execute at once, apart from those that flowcontrol exempts.
	MaxInFlight, MaxMutatingInFlight int
	RequestTimeout                   time.Duration
	// MinWatch is the least that a watch without timeoutSeconds lasts: half an hour. It lasts up to twice as long, so that watchers spread over servers.
	MinWatch time.Duration
	// StoreHealthTimeout and StoreReadyTimeout are how long the store may take to say that it is well: 2 s.
	StoreHealthTimeout, StoreReadyTimeout time.Duration
	// Tolerations are for how long pods stay on nodes in trouble; 300 s each if nil.
	Tolerations *defaulttolerationseconds.Options
	NoProfiling bool // do not serve /debug/pprof
	// Flags are what /flagz shows: the command line, by the names of flags.
	Flags   map[string]string
	Journey *journey.Recorder
	// Seen is told of every request over the network or in process, and who sent it; for tests.
	Seen func(*http.Request, *authz.Attributes)
	// GuardShared is told of components that change shared objects; for tests.
	GuardShared func(problem string)
	Log         *slog.Logger
}

func (o *Options) complete() {
	if o.EtcdPrefix == "" {
		o.EtcdPrefix = "/registry"
	}
	if o.EventTTL == 0 {
		o.EventTTL = time.Hour
	}
	if len(o.AuthorizationModes) == 0 {
		o.AuthorizationModes = []string{authz.ModeAlwaysAllow}
	}
	if len(o.ServiceCIDRs) == 0 {
		o.ServiceCIDRs = []string{"10.43.0.0/16"}
	}
	if o.NodePortRange == "" {
		o.NodePortRange = "30000-32767"
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 400
	}
	if o.MaxMutatingInFlight == 0 {
		o.MaxMutatingInFlight = 200
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = time.Minute
	}
	if o.MinWatch == 0 {
		o.MinWatch = 30 * time.Minute
	}
	if o.StoreHealthTimeout == 0 {
		o.StoreHealthTimeout = 2 * time.Second
	}
	if o.StoreReadyTimeout == 0 {
		o.StoreReadyTimeout = 2 * time.Second
	}
	if o.Tolerations == nil {
		o.Tolerations = &defaulttolerationseconds.Defaults
	}
	if len(o.KubeletAddresses) == 0 {
		o.KubeletAddresses = DefaultKubeletAddresses()
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// FrontOptions are about what browsers and load balancers are told with every response.
type FrontOptions = front.HeaderOptions

// Server is an API server. It is an http.Handler.
type Server struct {
	opts     Options
	front    *front.Front
	feed     *cache.Feed
	api      *verbs.API
	loopback *loopback
	identity identity
	leaving  atomic.Bool // soon to stop
	stopping context.Context
	stop     context.CancelFunc
	// background is what runs beside requests; Close waits for it.
	background sync.WaitGroup
}

// New starts a server on a store. It answers requests once Ready is closed; before that it answers 503 but for /livez and /healthz.
func New(opts Options) (*Server, error) {
	opts.complete()
	if err := opts.Front.Check(); err != nil {
		return nil, err
	}
	s := &Server{opts: opts}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.api = &verbs.API{Infos: all.Resources(), Endpoints: map[schema.GroupVersionResource]*verbs.Endpoint{}, Handlers: map[verbs.HandlerKey]verbs.Handler{},
		Metrics: metrics.New(versionInfo()), MinWatch: opts.MinWatch, Shared: response.Shared{Stopping: s.stopping}}
	root := opts.EtcdPrefix + "/"
	var kinds []cache.Kind
	for _, info := range s.api.Infos {
		if info.Stored == info && !info.Virtual {
			kinds = append(kinds, registry.Kind(info, root))
		}
	}
	s.feed = cache.NewFeed(opts.Store, kinds, cache.Options{Root: root, Log: opts.Log, GuardShared: opts.GuardShared, Observe: s.observe})
	s.addEndpoints(root)
	s.loopback = s.newLoopback()
	err := errors.Join(s.addIdentity(), s.addServices())
	if err == nil {
		s.addHandlers()
		err = s.addFront()
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

// As is how a component of this process reaches the server: see client.ForServer.
func (s *Server) As(user *authn.User) client.View {
	return (&inprocess.Server{Handler: s, API: s.api, Journey: s.opts.Journey}).As(user)
}

// CheckShared checks now that nobody has changed a shared object, and tells Options.GuardShared who did. Objects are checked anyway when
// they are replaced and when the server is closed.
func (s *Server) CheckShared() { s.feed.CheckShared() }

func (s *Server) addEndpoints(root string) {
	opts := registry.Options{Store: s.opts.Store, Feed: s.feed, Root: root, AsJSON: s.opts.StorageJSON, TTL: s.opts.EventTTL}
	for _, info := range s.api.Infos {
		var reg *registry.Registry
		if !info.Virtual {
			// A view has its own: the objects are the same, the rules may differ.
			reg = registry.New(info.Stored, opts)
		}
		hot := s.feed.Hot()
		if !info.Virtual && info.Stored.Uncached {
			hot = nil // an object that is read from the store is not asked for again
		}
		s.api.Endpoints[info.GVR] = verbs.NewEndpoint(info, reg, hot)
	}
	for _, a := range s.api.Infos {
		for _, b := range s.api.Infos {
			if a != b && a.Stored.GVR == b.Stored.GVR {
				s.api.Endpoints[a.GVR].Related = append(s.api.Endpoints[a.GVR].Related, b)
			}
		}
	}
}

// addHandlers adds what serves the resources and subresources that no generic verb serves.
func (s *Server) addHandlers() {
	family := discoveryv1.AddressTypeIPv4
	if netutils.IsIPv6CIDRString(s.opts.ServiceCIDRs[0]) {
		family = discoveryv1.AddressTypeIPv6
	}
	subresources.Register(subresources.Options{API: s.api, Authentication: s.identity.authentication, EtcdPrefix: s.opts.EtcdPrefix,
		StoreHealthy: s.storeHealthy(s.opts.StoreHealthTimeout), Dial: s.opts.Dial, KubeletTLS: s.opts.KubeletTLS, KubeletAddresses: s.opts.KubeletAddresses, AddressType: family})
}

// addFront puts the filters before what serves resources and other paths.
func (s *Server) addFront() (err error) {
	flow := front.NewFlowControl(s.opts.MaxInFlight + s.opts.MaxMutatingInFlight)
	others := nonresource.New(nonresource.Options{API: s.api, Build: versionInfo(), Address: s.address(), Flags: s.opts.Flags, Profiling: !s.opts.NoProfiling,
		OpenAPI: openapi.New(time.Now), Flow: flow, TokenDocuments: s.identity.authentication.Discovery, Journey: s.opts.Journey, Tunnel: s.opts.Tunnel,
		StoreHealthy: s.storeHealthy(s.opts.StoreHealthTimeout), StoreReady: s.storeHealthy(s.opts.StoreReadyTimeout), CachesSynced: s.feed.Synced(),
		ShuttingDown: func() bool { return s.leaving.Load() || s.stopping.Err() != nil }, Log: s.opts.Log})
	s.front, err = front.New(front.Options{Headers: s.opts.Front, API: s.api, NonResource: others, Authentication: s.identity.authentication, Flow: flow,
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

// AddMetrics has /metrics show those of a component in this process too.
func (s *Server) AddMetrics(g prometheus.Gatherer) {
	s.api.Metrics.Add(g)
}

// begin waits for the caches and makes the objects every cluster has.
func (s *Server) begin() {
	select {
	case <-s.feed.Synced():
	case <-s.stopping.Done():
		return
	}
	s.loopback.begin(s.stopping)
	s.bootstrap(s.stopping)
	s.reconcileRoles(s.stopping)
	s.publishTrust(s.stopping)
	s.loopback.caughtUp(s.stopping) // who asks at once must have the rights that were just written
	s.api.Ready.Store(s.stopping.Err() == nil)
	if s.opts.StoreUsage != nil {
		s.watchUsage(s.stopping, cmp.Or(s.opts.UsageEvery, usageEvery))
	}
}

// WaitReady waits until the server answers requests.
func (s *Server) WaitReady(ctx context.Context) error {
	for !s.api.Ready.Load() {
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

// Leave has /readyz say that the server will stop. It goes on serving: load balancers are to send their clients elsewhere first.
func (s *Server) Leave() { s.leaving.Store(true) }

// Drain stops being ready and ends the watches, so that a listener can be shut down.
func (s *Server) Drain() {
	s.api.Ready.Store(false)
	s.stop()
}

// Close ends everything the server runs. The store is not closed.
func (s *Server) Close() {
	s.Drain()
	s.background.Wait()
	s.feed.Close()
}

// observe is told of every change the caches take in.
func (s *Server) observe(c *cache.Cache, change *cache.Change) {
	s.opts.Journey.Delivered(change.Item.UID, change.Item.Revision)
}

// DefaultKubeletAddresses is which of a node's addresses is tried: the first there is. Names come last, as nothing in the cluster resolves them
// for this server.
func DefaultKubeletAddresses() []corev1.NodeAddressType {
	return []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS}
}
