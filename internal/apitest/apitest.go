package apitest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authz"
	authzconfig "skiff/internal/apiserver/authz/config"
	"skiff/internal/client"
	"skiff/internal/cluster/pki"
	"skiff/internal/http2"
	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// startTimeout bounds how long a server may take to be ready. It usually takes a hundredth of that; test machines can be slow.
const startTimeout = 10 * time.Second

// Server is an API server that runs as long as a test.
type Server struct {
	t           testing.TB
	options     options
	certificate tls.Certificate
	ca          []byte
	address     string
	kubeconfig  string
	client      *client.Client

	mu     sync.Mutex
	tokens map[string]*authn.User

	api            *apiserver.Server // nil while killed
	http           *http.Server
	serving        sync.WaitGroup
	stopComponents context.CancelFunc
	components     sync.WaitGroup
	defaultStore   store.Store // set if the test passed no store
}

// Start starts a server, waits until it is ready and stops it when the test ends. The test fails if an object that informers share was
// changed.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{t: t, address: "127.0.0.1:0", tokens: map[string]*authn.User{}}
	for _, o := range opts {
		o(&s.options)
	}
	if s.options.store == nil {
		s.defaultStore = memory.New(memory.Options{})
		s.options.store = s.defaultStore
	}
	s.makeCertificate()
	t.Cleanup(s.stop)
	s.start()
	s.writeKubeconfig()
	var err error
	if s.client, err = client.ForConfig(s.Config(), "apitest"); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Server) makeCertificate() {
	dir, now := s.t.TempDir(), time.Now()
	authority, err := pki.LoadAuthority(dir, now)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.certificate, err = authority.Serving(dir, "apiserver", []string{"localhost", "127.0.0.1"}, now); err != nil {
		s.t.Fatal(err)
	}
	s.ca = authority.PEM()
}

func (s *Server) start() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = listener.Addr().String() // kept over restarts
	o := apiserver.Options{
		Store: s.options.store, Log: s.options.log,
		Authentication: authnconfig.Options{AnonymousAuth: true, MoreTokens: authn.Tokens{authn.ForServer(nil, s.authenticate)}},
		Authorization:  authzconfig.Options{Modes: []string{authz.ModeNode, authz.ModeRBAC}}, AggregateRoles: true, CheckPolicyTypes: true,
		// No controller creates the default service account of namespaces, so pods must not need one.
		DisableAdmission: []string{ServiceAccounts},
		Port:             listener.Addr().(*net.TCPAddr).Port, AdvertiseAddress: "127.0.0.1",
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if !s.options.unguarded {
		o.GuardShared = func(problem string) { s.t.Error(problem) }
	}
	for _, change := range s.options.change {
		change(&o)
	}
	if s.api, err = apiserver.New(o); err != nil {
		listener.Close()
		s.t.Fatal(err)
	}
	s.http = &http.Server{
		Handler:   s.api,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.certificate}},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	server := s.http
	s.serving.Go(func() {
		if err := http2.Serve(server, listener, http2.Options{}); !errors.Is(err, http.ErrServerClosed) {
			s.t.Errorf("the API server stopped serving: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.api.WaitReady(ctx); err != nil {
		s.t.Fatalf("the API server was not ready within %v: %v", startTimeout, err)
	}
	s.startComponents(ctx, o.Log)
}

// startComponents starts the components, all at once, and waits until each of them is ready.
func (s *Server) startComponents(ctx context.Context, log *slog.Logger) {
	s.t.Helper()
	running, stop := context.WithCancel(context.Background())
	s.stopComponents = stop
	var started []Component
	for _, prepare := range s.options.components {
		c, err := prepare(Place{API: s.api, CA: s.ca, Log: log})
		if err != nil {
			s.t.Fatal(err)
		}
		started = append(started, c)
		s.components.Go(func() {
			if err := c.Run(running); err != nil && running.Err() == nil {
				s.t.Errorf("%s ended: %v", c.Name, err)
			}
		})
	}
	for _, c := range started {
		if err := c.Ready(ctx); err != nil {
			s.t.Fatalf("%s: not ready after %v: %v", c.Name, startTimeout, err)
		}
	}
	for _, c := range started {
		if c.Settled == nil {
			continue
		}
		if err := c.Settled(ctx); err != nil {
			s.t.Fatalf("%s: not at rest after %v: %v", c.Name, startTimeout, err)
		}
	}
	for _, c := range started {
		if c.Seen == nil {
			continue
		}
		if err := c.Seen(ctx); err != nil {
			s.t.Fatalf("%s: not up to date after %v: %v", c.Name, startTimeout, err)
		}
	}
}

// Kill stops the server and its components without draining: connections and watches break. Acknowledged writes are in the store.
func (s *Server) Kill() {
	if s.api == nil {
		return
	}
	if s.stopComponents != nil {
		s.stopComponents()
	}
	s.components.Wait()
	s.http.Close()
	s.serving.Wait()
	s.api.Close()
	s.api = nil
}

// Restart kills the server if it runs, and starts it again at the same address and on the same store, unless an option changes it.
func (s *Server) Restart(opts ...Option) {
	s.t.Helper()
	s.Kill()
	for _, o := range opts {
		o(&s.options)
	}
	s.start()
}

func (s *Server) stop() {
	s.Kill()
	if s.defaultStore != nil {
		s.defaultStore.Close()
	}
}

// URL returns the URL of the API.
func (s *Server) URL() string { return "https://" + s.address }

// Config returns the client configuration of the administrator, without a rate limit.
func (s *Server) Config() *rest.Config { return s.configFor(authn.Admin()) }

// ConfigFor returns the client configuration of another user, who is authenticated by a new token.
func (s *Server) ConfigFor(user string, groups ...string) *rest.Config {
	return s.configFor(&authn.User{Username: user, Groups: append(groups, authn.SystemAuthenticated)})
}

func (s *Server) configFor(user *authn.User) *rest.Config {
	token := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = user
	return &rest.Config{Host: s.URL(), BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: s.ca}}
}

func (s *Server) authenticate(_ context.Context, token string) (*authn.User, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if user := s.tokens[token]; user != nil {
		return user, nil
	}
	return nil, errors.New("unknown token")
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s *Server) Kubeconfig() string { return s.kubeconfig }

func (s *Server) writeKubeconfig() {
	const name = "apitest"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.URL(), CertificateAuthorityData: s.ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: s.Config().BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	s.kubeconfig = filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, s.kubeconfig); err != nil {
		s.t.Fatal(err)
	}
}

// Client returns the administrator's client, over HTTPS.
func (s *Server) Client() kubernetes.Interface { return s.client.Kubernetes() }

// InProcess returns the client of a component in the server's process: typed, dynamic and metadata clients, and informers that share the
// server's objects. component is its name, user and groups are its identity.
func (s *Server) InProcess(component, user string, groups ...string) *client.Client {
	s.t.Helper()
	c, err := client.ForServer(s.api, client.Identity{Component: component, User: user, Groups: groups})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// Remote returns the client of a component that reaches the server over HTTPS, otherwise the same as InProcess.
func (s *Server) Remote(component, user string, groups ...string) *client.Client {
	s.t.Helper()
	c, err := client.ForConfig(s.ConfigFor(user, groups...), component)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// CheckShared fails the test if an object that informers share was changed. It is also checked when the test ends.
func (s *Server) CheckShared() { s.api.CheckShared() }
