package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"skiff/internal/apiserver"
	"skiff/internal/cluster/datadir"
	"skiff/internal/cluster/pki"
	"skiff/internal/cluster/tunnel"
	"skiff/internal/controller/all"
	"skiff/internal/hollow"
	"skiff/internal/http2"
	"skiff/internal/journey"
	"skiff/internal/store"
	"skiff/internal/store/etcd"
	"skiff/internal/usage/history"
)

// Server is a running control plane.
type Server struct {
	config Config
	store  *etcd.Store
	api    *apiserver.Server
	http   *http.Server
	certs  *pki.Manager
	ca     []byte // the authority of the API's certificate, if that is not the cluster's own
	url    string
	node   *node // nil without a node
	hub    *tunnel.Hub
	hollow atomic.Pointer[hollow.Nodes] // nil without hollow nodes
	// kubeconfigsWritten is set once kubeconfigs are written: from then on other processes use the API.
	kubeconfigsWritten atomic.Bool
	shutdownDelay      sync.Once

	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan error
}

// Start starts a control plane, with a node if the configuration has one, and returns when its API answers.
func Start(ctx context.Context, config Config) (_ *Server, err error) {
	if err := config.Complete(); err != nil {
		return nil, err
	}
	if err := datadir.Prepare(config.DataDir); err != nil {
		return nil, err
	}
	s := &Server{config: config, failed: make(chan error, 1)}
	running, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	// The port is opened first: a second server on the same port must not touch the store.
	listener, err := net.Listen("tcp", net.JoinHostPort(config.BindAddress, strconv.Itoa(config.Port)))
	if err != nil {
		return nil, fmt.Errorf("the API server failed to listen (--port gives another port): %w", err)
	}
	inherited, err := inheritedListener()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if inherited != nil {
		listener = joinListeners(listener, inherited)
	}
	defer func() {
		if err != nil {
			listener.Close()
		}
	}()
	if config.Node.Run {
		if s.node, err = startRuntime(running, s.nodeOptions()); err != nil {
			return nil, err
		}
	}
	var certsErr error
	var opening sync.WaitGroup
	opening.Go(func() { s.certs, certsErr = s.openCerts() })
	s.store, err = openStore(ctx, config)
	opening.Wait()
	if err = errors.Join(err, certsErr); err != nil {
		return nil, err
	}
	s.wg.Go(func() { s.certs.Run(running) })
	s.wg.Go(func() {
		store.RunCompactor(running, s.store, store.CompactorOptions{Interval: config.EtcdCompactionInterval, Log: config.Log})
	})
	authentication, err := s.authentication()
	if err != nil {
		return nil, err
	}
	kubelets, err := s.kubeletTLS()
	if err != nil {
		return nil, err
	}
	proxyCertificate, err := s.proxyClientCertificate()
	if err != nil {
		return nil, err
	}
	encryptionFile, ownKey, err := config.Encryption.locate(config.DataDir)
	if err != nil {
		return nil, err
	}
	s.hub = s.openHub()
	if s.api, err = apiserver.New(apiserver.Options{
		AggregateRoles: all.On(all.Aggregation, config.Controllers), CheckPolicyTypes: all.On(all.PolicyStatus, config.Controllers),
		Authentication: authentication, Authorization: config.Authorization, EnableAdmission: config.EnableAdmission, DisableAdmission: config.DisableAdmission, AdmissionConfigFile: config.AdmissionConfigFile,
		Store: s.store, StoreHealthy: s.store.Healthy, StoreUsage: s.storeUsage, EtcdPrefix: config.EtcdPrefix, StorageJSON: config.StorageMediaType == JSONMediaType, EventTTL: config.EventTTL,
		EncryptionFile: encryptionFile, ReloadEncryption: config.Encryption.Reload || ownKey, RewriteSecrets: ownKey,
		ServiceCIDRs: config.ServiceCIDRs, NodePortRange: config.NodePortRange, AdvertiseAddress: config.AdvertiseAddress, Port: config.Port,
		KubeletTLS: kubelets, KubeletAddresses: config.Kubelets.addressTypes(), Dial: s.hub.Dial, Tunnel: s.hub.Serve,
		ProxyClientCertificate: proxyCertificate, ForwardRedirects: config.Aggregation.ForwardRedirects,
		ExternalHost: config.Serving.ExternalHost, Front: config.Serving.Front, MinWatch: time.Duration(config.Serving.MinRequestTimeout) * time.Second, NoProfiling: config.Serving.NoProfiling,
		StoreHealthTimeout: config.EtcdHealthTimeout, StoreReadyTimeout: config.EtcdReadyTimeout, Tolerations: config.Tolerations, InitialResources: config.InitialResources, Flags: config.Flags,
		ResourceMetrics: !slices.Contains(config.Disable, PartMetrics), LocalUsage: s.hollowUsage, UsageHistory: history.Open(filepath.Join(config.DataDir, usageDir, "history"), config.Log),
		MaxInFlight: config.MaxInFlight, MaxMutatingInFlight: config.MaxMutatingInFlight, NoFairness: config.NoFairness, RequestTimeout: config.RequestTimeout,
		Journey: journey.New(journey.Options{}), Seen: config.Seen, Log: config.Log,
	}); err != nil {
		return nil, err
	}
	tlsConfig, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}
	s.serve(listener, tlsConfig)
	if err := s.api.WaitReady(ctx); err != nil {
		return nil, err
	}
	for _, start := range []func(context.Context) error{s.startControllers, s.startScheduler, s.startHollowNodes, s.startNode} {
		if err := start(running); err != nil {
			return nil, err
		}
	}
	if err := s.kubeconfigs().write(); err != nil {
		return nil, err
	}
	s.kubeconfigsWritten.Store(true)
	return s, nil
}

// usageDir is the directory in the data directory of what containers have used.
const usageDir = "usage"

// storeUsage returns the size and the quota of the store's database.
func (s *Server) storeUsage(ctx context.Context) (apiserver.StoreUsage, error) {
	size, inUse, err := s.store.Size(ctx)
	return apiserver.StoreUsage{Size: size, InUse: inUse, Quota: s.store.Quota()}, err
}

func openStore(ctx context.Context, c Config) (*etcd.Store, error) {
	if len(c.EtcdServers) > 0 {
		return etcd.Dial(ctx, etcd.DialOptions{Endpoints: c.EtcdServers, CAFile: c.EtcdCAFile, CertFile: c.EtcdCertFile, KeyFile: c.EtcdKeyFile})
	}
	return etcd.Embed(ctx, etcd.EmbedOptions{Dir: filepath.Join(c.DataDir, "etcd"), QuotaBytes: c.EtcdQuotaBytes, Listen: c.EtcdListen,
		CAFile: c.EtcdCAFile, CertFile: c.EtcdCertFile, KeyFile: c.EtcdKeyFile, Log: c.Log})
}

const (
	readHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second
	maxHeaderBytes    = 1 << 20
	// writeTimeout is how long a client may leave what was sent unread before its connection is closed.
	writeTimeout = 30 * time.Second
)

// serve serves the API on a listener until the server is stopped.
func (s *Server) serve(listener net.Listener, config *tls.Config) {
	s.url = "https://" + localAddress(listener.Addr().(*net.TCPAddr))
	s.http = &http.Server{
		Handler: s.serveAuthorities(s.api), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		TLSConfig: config, ErrorLog: quietLog(s.config.Log),
	}
	connections, perAddress := s.config.Serving.connectionLimits()
	s.wg.Go(func() {
		if err := http2.Serve(s.http, listener, http2.Options{MaxStreams: s.config.Serving.MaxStreams, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout, WriteTimeout: writeTimeout,
			MaxConnections: connections, MaxConnectionsPerAddress: perAddress}); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.fail(err)
		}
	})
}

// localAddress returns the address at which this machine reaches a listener.
func localAddress(a *net.TCPAddr) string {
	if a.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port))
	}
	return a.String()
}

// URL returns the URL of the API.
func (s *Server) URL() string { return s.url }

// Wait returns nil when ctx ends, or the error that made the server fail.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// fail has Wait return the error. Only the first error counts.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// drainTimeout bounds how long requests in flight may take when the server stops.
const drainTimeout = 10 * time.Second

// Stop stops the server: after --shutdown-delay-duration, which load balancers have to notice it, no new requests are accepted, watches end, requests in flight
// finish, and then the store closes.
func (s *Server) Stop() {
	if delay := s.config.Serving.ShutdownDelay; delay > 0 && s.kubeconfigsWritten.Load() {
		s.shutdownDelay.Do(func() {
			s.api.Leave()
			select {
			case <-time.After(delay):
			case <-s.failed: // a server that has failed need not wait
			}
		})
	}
	if s.api != nil {
		s.api.Drain()
	}
	if s.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			s.http.Close()
		}
	}
	s.cancel()
	if s.hub != nil {
		s.hub.Close()
	}
	if s.api != nil {
		s.api.Close()
	}
	s.wg.Wait()
	s.node.stop()
	if s.store != nil {
		s.store.Close()
	}
}
