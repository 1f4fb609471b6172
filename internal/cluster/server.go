package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn"
	"skiff/internal/cluster/pki"
	"skiff/internal/http2"
	"skiff/internal/journey"
	"skiff/internal/store"
	"skiff/internal/store/etcd"
)

// Server is a running control plane.
type Server struct {
	config Config
	store  *etcd.Store
	api    *apiserver.Server
	http   *http.Server
	ca     []byte
	token  string // the administrator's
	url    string

	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan error
}

// Start starts a control plane and returns when its API answers.
func Start(ctx context.Context, config Config) (_ *Server, err error) {
	if err := config.Complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	s := &Server{config: config, failed: make(chan error, 1)}
	running, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	// The port is taken first: a second server on the same one must not touch the store.
	listener, err := net.Listen("tcp", net.JoinHostPort(config.BindAddress, strconv.Itoa(config.Port)))
	if err != nil {
		return nil, fmt.Errorf("the API cannot listen: %w", err)
	}
	defer func() {
		if err != nil {
			listener.Close()
		}
	}()
	if s.store, err = openStore(ctx, config); err != nil {
		return nil, err
	}
	s.wg.Go(func() {
		store.RunCompactor(running, s.store, store.CompactorOptions{Interval: config.EtcdCompactionInterval, Log: config.Log})
	})
	if s.token, err = pki.LoadToken(filepath.Join(config.DataDir, "pki", "admin.token")); err != nil {
		return nil, err
	}
	if s.api, err = apiserver.New(apiserver.Options{
		Authenticator: authn.Chain{authn.Components, authn.Token(s.token, authn.Admin())},
		Store:         s.store, StoreHealthy: s.store.Healthy, EtcdPrefix: config.EtcdPrefix, StorageJSON: config.StorageMediaType == JSONMediaType, EventTTL: config.EventTTL,
		ServiceCIDRs: config.ServiceCIDRs, NodePortRange: config.NodePortRange, AdvertiseAddress: config.AdvertiseAddress, Port: config.Port,
		MaxInFlight: config.MaxInFlight, MaxMutatingInFlight: config.MaxMutatingInFlight, RequestTimeout: config.RequestTimeout,
		Journey: journey.New(journey.Options{}), Log: config.Log,
	}); err != nil {
		return nil, err
	}
	certificate, err := s.certificate()
	if err != nil {
		return nil, err
	}
	s.serve(listener, certificate)
	if err := s.api.WaitReady(ctx); err != nil {
		return nil, err
	}
	return s, s.writeKubeconfig()
}

func openStore(ctx context.Context, c Config) (*etcd.Store, error) {
	if len(c.EtcdServers) > 0 {
		return etcd.Dial(ctx, etcd.DialOptions{Endpoints: c.EtcdServers, CAFile: c.EtcdCAFile, CertFile: c.EtcdCertFile, KeyFile: c.EtcdKeyFile})
	}
	return etcd.Embed(ctx, etcd.EmbedOptions{Dir: filepath.Join(c.DataDir, "etcd"), QuotaBytes: c.EtcdQuotaBytes, Listen: c.EtcdListen,
		CAFile: c.EtcdCAFile, CertFile: c.EtcdCertFile, KeyFile: c.EtcdKeyFile, Log: c.Log})
}

// certificate is what the API shows: the one given, or one of the cluster's own authority.
func (s *Server) certificate() (tls.Certificate, error) {
	c := s.config
	if c.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSKeyFile)
		if err != nil {
			return pair, fmt.Errorf("the API's certificate: %w", err)
		}
		s.ca, err = os.ReadFile(c.TLSCertFile)
		return pair, err
	}
	dir := filepath.Join(c.DataDir, "pki")
	now := time.Now()
	authority, err := pki.LoadAuthority(dir, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	s.ca = authority.PEM()
	hosts := []string{"localhost", "127.0.0.1", "::1", c.BindAddress, c.AdvertiseAddress,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	return authority.Serving(dir, "apiserver", hosts, now)
}

const (
	readHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second
	maxHeaderBytes    = 1 << 20
	// slowestWrite is how long a client may leave a write unread before it is cut.
	slowestWrite = 30 * time.Second
)

func (s *Server) serve(listener net.Listener, certificate tls.Certificate) {
	s.url = "https://" + listener.Addr().String()
	s.http = &http.Server{
		Handler: s.api, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, DynamicRecordSizingDisabled: true},
		ErrorLog:  quietLog(s.config.Log),
	}
	s.wg.Go(func() {
		if err := http2.Serve(s.http, listener, http2.Options{MaxHeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout, WriteTimeout: slowestWrite}); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	})
}

// URL is where the API is served.
func (s *Server) URL() string { return s.url }

// API is the API server.
func (s *Server) API() *apiserver.Server { return s.api }

// Wait returns when ctx ends, or with what made the server fail.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// drainTime bounds how long requests under way may take when the server stops.
const drainTime = 10 * time.Second

// Stop ends the server: no new requests, watches end, requests under way finish, then the store closes.
func (s *Server) Stop() {
	if s.api != nil {
		s.api.Drain()
	}
	if s.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			s.http.Close()
		}
	}
	s.cancel()
	if s.api != nil {
		s.api.Close()
	}
	s.wg.Wait()
	if s.store != nil {
		s.store.Close()
	}
}
