package aggregation

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

const (
	// maxInFlight bounds the requests that one server works on at once, but for watches and other long-running ones.
	maxInFlight = 400
	// maxConnections bounds the connections to one endpoint. HTTP/2 has many requests on each of them.
	maxConnections = 1024
	// maxIdleConnections are kept open to one endpoint, for idleTimeout.
	maxIdleConnections = 25
	idleTimeout        = 90 * time.Second
	handshakeTimeout   = 10 * time.Second
	// pingAfter is how long a connection of HTTP/2 may be silent before it is pinged, and pingTimeout how long the answer may take.
	pingAfter, pingTimeout = 30 * time.Second, 15 * time.Second
	// maxHeader bounds the headers of a response.
	maxHeader = 1 << 20
	// maxDialTries bounds how many endpoints are tried until somebody listens.
	maxDialTries = 4
	// fetchTimeout is how long a server may take to answer this server's own requests.
	fetchTimeout = 5 * time.Second
)

// Backend is the server of one group version.
type Backend struct {
	owner *Aggregation
	name  string // of the APIService
	uid   types.UID
	gv    schema.GroupVersion
	spec  apiregistrationv1.APIServiceSpec

	available atomic.Bool
	// tlsConfig and transport are made for the first request.
	tlsConfig func() (*tls.Config, error)
	transport func() (*http.Transport, error)
	inFlight  chan struct{}

	// putting is held while OpenAPI documents are put. When retired is set, none are any more: another backend has taken over, or the APIService is gone.
	putting sync.Mutex
	retired bool

	// knownMu guards what follows.
	knownMu sync.Mutex
	known   known
}

func newBackend(a *Aggregation, s *apiregistrationv1.APIService) *Backend {
	b := &Backend{owner: a, name: s.Name, uid: s.UID, gv: schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}, spec: *s.Spec.DeepCopy(), inFlight: make(chan struct{}, maxInFlight)}
	b.tlsConfig, b.transport = sync.OnceValues(b.newTLSConfig), sync.OnceValues(b.newTransport)
	return b
}

// Name returns the name of the APIService.
func (b *Backend) Name() string { return b.name }

func (b *Backend) service() serviceKey {
	return serviceKey{b.spec.Service.Namespace, b.spec.Service.Name}
}

func (b *Backend) port() int32 { return ptr.Deref(b.spec.Service.Port, 443) }

// path returns what the paths of the group version begin with, without the first slash.
func (b *Backend) path() string {
	if b.gv.Group == "" {
		return "api/" + b.gv.Version
	}
	return "apis/" + b.gv.String()
}

// serves reports whether a path is one of the group version. The group without a name has /api too.
func (b *Backend) serves(path string) bool {
	own, ok := strings.CutPrefix(path, "/"+b.path())
	return ok && (own == "" || own[0] == '/') || b.gv.Group == "" && path == "/api"
}

// newTransport returns the transport to the server. The certificate must be for the name of the Service, whatever the endpoint.
func (b *Backend) newTransport() (*http.Transport, error) {
	config, err := b.tlsConfig()
	if err != nil {
		return nil, err
	}
	return &http.Transport{DialContext: b.owner.Dial, TLSClientConfig: config.Clone(), TLSHandshakeTimeout: handshakeTimeout, DisableCompression: true, ForceAttemptHTTP2: true,
		MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: maxIdleConnections, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}}, nil
}

func (b *Backend) newTLSConfig() (*tls.Config, error) {
	config := &tls.Config{ServerName: b.spec.Service.Name + "." + b.spec.Service.Namespace + ".svc", MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: b.spec.InsecureSkipTLSVerify} //nolint:gosec // the APIService asks for it
	if len(bytes.TrimSpace(b.spec.CABundle)) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(b.spec.CABundle) {
			return nil, errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if b.owner.ClientCertificate == nil {
			return &tls.Certificate{}, nil
		}
		return b.owner.ClientCertificate()
	}
	return config, nil
}

// retire is called when requests are not sent here any more.
func (b *Backend) retire() {
	b.putting.Lock()
	b.retired = true
	b.putting.Unlock()
	b.close()
}

// close closes the connections that are idle; others are closed when they become idle long enough.
func (b *Backend) close() {
	if t, err := b.transport(); err == nil {
		t.CloseIdleConnections()
	}
}

// resolve returns HOST:PORT of an endpoint.
func (b *Backend) resolve(ctx context.Context) (string, error) {
	return b.owner.Resolve(ctx, b.spec.Service.Namespace, b.spec.Service.Name, b.port())
}

// retrying is a transport that tries other endpoints when nobody listens at the first: its pod may just have ended.
type retrying struct {
	backend *Backend
	next    http.RoundTripper
	// identify sets the headers that name the user. It must not be done earlier: the proxy removes the headers that the client's Connection header names.
	identify func(*http.Request)
}

// RoundTrip implements http.RoundTripper.
func (t retrying) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	t.identify(r)
	if r.Body != nil {
		r.Body = io.NopCloser(r.Body) // a failed try must not close it: nothing of it was sent. The server that received the request closes it.
	}
	for try := 1; ; try++ {
		response, err := t.next.RoundTrip(r)
		if err == nil || try == maxDialTries || !isDialError(err) || r.Context().Err() != nil {
			return response, err
		}
		host, resolveErr := t.backend.resolve(r.Context())
		if resolveErr != nil {
			return nil, err
		}
		again := r.Clone(r.Context())
		again.URL.Host = host
		r = again
	}
}

// dialEndpoint connects to an endpoint, whatever the address: the first that is tried, and others if nobody listens there.
func (b *Backend) dialEndpoint(ctx context.Context, network, address string) (net.Conn, error) {
	for try := 1; ; try++ {
		conn, err := b.owner.Dial(ctx, network, address)
		if err == nil || try == maxDialTries || ctx.Err() != nil {
			return conn, err
		}
		host, resolveErr := b.resolve(ctx)
		if resolveErr != nil {
			return nil, err
		}
		address = host
	}
}

// isDialError reports whether no connection could be made, so that nothing was sent.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// identity is a user as which this server sends requests of its own.
type identity struct {
	user   string
	groups []string
}

// aggregator is who this server is for others, with all permissions.
var aggregator = identity{"system:kube-aggregator", []string{"system:masters"}}

// fetched is the response to a request of this server's own.
type fetched struct {
	url    *url.URL
	code   int
	header http.Header
	body   []byte
}

var errTooLarge = errors.New("the response is too large")

// fetch sends a request of this server's own. A response whose body is larger than limit is an error; a negative limit does not read it.
func (b *Backend) fetch(ctx context.Context, path, query string, header http.Header, limit int64) (*fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	t, err := b.transport()
	if err != nil {
		return nil, err
	}
	host, err := b.resolve(ctx)
	if err != nil {
		return nil, err
	}
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: host, Path: path, RawQuery: query}, Header: header.Clone()}).WithContext(ctx)
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("User-Agent", "kube-apiserver")
	transport.SetAuthProxyHeaders(r, aggregator.user, "", aggregator.groups, nil)
	response, err := t.RoundTrip(r) // follows no redirect
	if err != nil {
		return nil, &fetchError{r.URL, &url.Error{Op: "Get", URL: r.URL.String(), Err: err}}
	}
	defer response.Body.Close()
	got := &fetched{url: r.URL, code: response.StatusCode, header: response.Header}
	if limit < 0 {
		return got, nil
	}
	if got.body, err = io.ReadAll(io.LimitReader(response.Body, limit+1)); err != nil {
		return nil, &fetchError{r.URL, err}
	}
	if int64(len(got.body)) > limit {
		return nil, &fetchError{r.URL, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)}
	}
	return got, nil
}

// fetchError is the error of a request that was sent somewhere.
type fetchError struct {
	url *url.URL
	err error
}

// Error implements error.
func (e *fetchError) Error() string {
	return fmt.Sprintf("failing or missing response from %v: %v", e.url, e.err)
}

// Unwrap returns the error below.
func (e *fetchError) Unwrap() error { return e.err }
