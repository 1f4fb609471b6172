package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"skiff/internal/localvolume"
	"skiff/internal/slis"
)

// Options of a server. All of the first group are required.
type Options struct {
	NodeName string
	// API is asked who clients are and what they may do. The node's own identity may ask that.
	API kubernetes.Interface
	// ClientCAs are the authorities whose certificates clients may show. It is called for every request, as authorities are renewed.
	ClientCAs func() *x509.CertPool
	// TLS has the certificate that is shown to clients.
	TLS     *tls.Config
	Pods    Pods
	Runtime Runtime
	Stats   Stats

	// Anonymous lets clients in who do not say who they are, as system:anonymous; what they may do is asked all the same.
	Anonymous bool
	// AlwaysAllow has nobody asked what clients may do, once it is known who they are.
	AlwaysAllow bool
	// Metrics are served at /metrics, Probes at /metrics/probes.
	Metrics, Probes prometheus.Gatherer
	// Healthy returns why the kubelet is unhealthy, nil if it is healthy.
	Healthy func(context.Context) error
	// Config is shown at /configz.
	Config func() any
	// LocalVolumes creates, expands and deletes volumes of the node, at localvolume.Path; nil on a node that has none.
	LocalVolumes http.Handler
	// LogDir is served at /logs/: /var/log if empty.
	LogDir string
	Log    *slog.Logger
}

// Pods are the pods bound to this node, with the status that the kubelet has computed, which may be newer than the API's. They are only read.
type Pods interface {
	Pods() []*corev1.Pod
	// Pod returns nil if there is none of that name.
	Pod(namespace, name string) *corev1.Pod
}

// Runtime is the part of cri.Runtime that the server needs.
type Runtime interface {
	Exec(context.Context, *runtimeapi.ExecRequest) (url string, err error)
	Attach(context.Context, *runtimeapi.AttachRequest) (url string, err error)
	PortForward(context.Context, *runtimeapi.PortForwardRequest) (url string, err error)
	ExecSync(ctx context.Context, id string, command []string, limit time.Duration) (*runtimeapi.ExecSyncResponse, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListPodSandboxes(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
}

// Stats measures what the node and its pods use.
type Stats interface {
	// Summary may leave out all but CPU time and memory where that is all that is asked for. What it returns is the caller's.
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

const (
	readHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second
	maxHeaderBytes    = 1 << 20
	// maxRequestDuration bounds requests that follow a log or hold a stream, as upstream.
	maxRequestDuration = 4 * time.Hour
	// maxInFlight bounds how many requests are served at once, streams among them.
	maxInFlight = 1000
	// stopTimeout is how long requests in flight may take when the server stops.
	stopTimeout = 2 * time.Second
)

// Server is the kubelet's API. It is an http.Handler, and a prometheus.Collector of its own metrics.
type Server struct {
	opts     Options
	mux      *http.ServeMux
	auth     *authenticator
	authz    *authorizer
	metrics  *metrics
	slis     *slis.Metrics
	inFlight chan struct{}
	serving  sync.WaitGroup
	stopping context.Context
	stop     context.CancelFunc
}

// New returns a server. It is served by Serve, or by another HTTPS server that requests client certificates.
func New(opts Options) *Server {
	if opts.LogDir == "" {
		opts.LogDir = "/var/log"
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	s := &Server{opts: opts, metrics: newMetrics(), slis: slis.New(), inFlight: make(chan struct{}, maxInFlight), auth: newAuthenticator(&opts), authz: newAuthorizer(&opts)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.mux = s.routes()
	return s
}

func (s *Server) routes() *http.ServeMux {
	m := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /containerLogs/{namespace}/{pod}/{container}": s.containerLogs,
		"GET /pods":                  s.pods,
		"GET /runningpods/{$}":       s.runningPods,
		"GET /stats/summary":         s.summary,
		"GET /metrics":               metricsOf(s.opts.Metrics),
		"GET /metrics/probes":        metricsOf(s.opts.Probes),
		"GET /metrics/resource":      s.resourceMetrics,
		"GET /metrics/cadvisor":      s.containerMetrics,
		"GET /metrics/slis":          s.serveSLIs,
		"GET /healthz":               s.healthz,
		"GET /healthz/{check}":       s.healthz,
		"GET /configz":               s.configz,
		"GET /logs/":                 s.systemLogs,
		"GET /debug/pprof/{name...}": profile,
	} {
		m.HandleFunc(pattern, handle)
	}
	// Browsers begin WebSockets with GET.
	for _, method := range []string{"GET ", "POST "} {
		for _, uid := range []string{"", "/{uid}"} {
			m.HandleFunc(method+"/exec/{namespace}/{pod}"+uid+"/{container}", s.exec)
			m.HandleFunc(method+"/attach/{namespace}/{pod}"+uid+"/{container}", s.attach)
			m.HandleFunc(method+"/portForward/{namespace}/{pod}"+uid, s.portForward)
		}
	}
	if s.opts.LocalVolumes != nil {
		m.Handle("POST "+localvolume.Path, s.opts.LocalVolumes)
	}
	for _, uid := range []string{"", "/{uid}"} {
		m.HandleFunc("POST /run/{namespace}/{pod}"+uid+"/{container}", s.run)
	}
	return m
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, rq *http.Request) {
	select {
	case s.inFlight <- struct{}{}:
		defer func() { <-s.inFlight }()
	default:
		tooMany(w)
		return
	}
	s.serving.Add(1)
	defer s.serving.Done()
	defer s.metrics.count(rq)()
	user, err := s.auth.authenticate(rq)
	if err != nil {
		s.opts.Log.Debug("failed to authenticate a client of the kubelet", "address", rq.RemoteAddr, "error", err)
		if errors.Is(err, errTooManyReviews) {
			tooMany(w)
			return
		}
		fail(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	switch code, message := s.authz.check(rq, user); code {
	case 0:
	case http.StatusTooManyRequests:
		tooMany(w)
		return
	default:
		fail(w, code, message)
		return
	}
	// Handlers and the runtime must not see credentials.
	rq.Header.Del("Authorization")
	rq.Header.Del("Cookie")
	out := &response{ResponseWriter: w, stopping: s.stopping}
	defer out.done()
	s.mux.ServeHTTP(out, rq)
}

// tooMany responds with 429 Too Many Requests.
func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	fail(w, http.StatusTooManyRequests, "too many requests")
}

// response is a response that can be hijacked; the connection is closed when the server stops.
type response struct {
	http.ResponseWriter
	stopping context.Context
	release  func() bool
}

// Hijack implements http.Hijacker.
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		_ = conn.SetDeadline(time.Time{}) // streams have no HTTP timeouts
		r.release = context.AfterFunc(r.stopping, func() { _ = conn.Close() })
	}
	return conn, buf, err
}

// Flush implements http.Flusher.
func (r *response) Flush() { _ = http.NewResponseController(r.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *response) done() {
	if r.release != nil {
		r.release()
	}
}

// fail responds with an error. The message ends up in messages of the API, so it gets no newline.
func fail(w http.ResponseWriter, code int, message string) {
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, message)
}

// Serve serves a listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	config := s.opts.TLS.Clone()
	if config.ClientAuth == tls.NoClientCert {
		config.ClientAuth = tls.RequestClientCert // authenticate verifies it
	}
	if len(config.NextProtos) == 0 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	server := &http.Server{Handler: s, TLSConfig: config, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, ReadTimeout: maxRequestDuration,
		WriteTimeout: maxRequestDuration, MaxHeaderBytes: maxHeaderBytes, ErrorLog: debugLogger(s.opts.Log)}
	stopped := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.stop()
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		s.serving.Wait()
	})
	err := server.ServeTLS(listener, "", "")
	if end() { // it did not stop because ctx ended
		_ = server.Close()
		s.Close()
		return err
	}
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// debugLogger returns a logger of net/http that logs at debug level: errors of clients.
func debugLogger(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

// Close ends streams and followed logs, and waits for all requests in flight. No more may be made.
func (s *Server) Close() {
	s.stop()
	s.serving.Wait()
}

// withStop returns a context that ends with the request or the server.
func (s *Server) withStop(rq *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(rq.Context())
	end := context.AfterFunc(s.stopping, cancel)
	return ctx, func() {
		end()
		cancel()
	}
}
