package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
)

const (
	// maxConnections bounds the connections to one address of a webhook server, and with it the calls at a time: further calls wait for one to end.
	maxConnections = 256
	// maxIdleConnections are kept open to one address, for idleTimeout.
	maxIdleConnections = 32
	idleTimeout        = 90 * time.Second
	dialTimeout        = 30 * time.Second
	handshakeTimeout   = 10 * time.Second
	// maxHeader bounds the headers of an answer.
	maxHeader = 64 << 10
)

// Resolve returns HOST:PORT at which the port of a service is to be reached now.
type Resolve func(ctx context.Context, namespace, name string, port int32) (host string, err error)

// Dial connects to an address.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Pool has the connections to all webhook servers.
type Pool struct {
	resolve     Resolve
	dial        Dial
	credentials *Credentials

	mu        sync.Mutex
	closed    bool
	endpoints map[[sha256.Size]byte]*Endpoint
}

// NewPool returns an empty pool. A nil dial connects directly; without credentials webhooks are called as nobody.
func NewPool(resolve Resolve, dial Dial, credentials *Credentials) *Pool {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	return &Pool{resolve: resolve, dial: dial, credentials: credentials, endpoints: map[[sha256.Size]byte]*Endpoint{}}
}

// Endpoint is a webhook server: an address and what its certificate is verified by.
type Endpoint struct {
	pool       *Pool
	key        [sha256.Size]byte
	server     string // HOST:PORT, by which credentials are found
	host       string // as the Host header and error texts have it
	service    *admissionregistrationv1.ServiceReference
	port       int32 // of the service
	serverName string
	caBundle   []byte

	mu   sync.Mutex
	made *connections // nil before the first call

	users    int  // guarded by pool.mu
	released bool // guarded by pool.mu: no webhook uses the endpoint any more
}

// Acquire returns the endpoint of a webhook, which shares its connections with other webhooks of the same server, and the path of the webhook there.
// Every call must be followed by one of Release.
func (p *Pool) Acquire(c *admissionregistrationv1.WebhookClientConfig) (e *Endpoint, urlPath string, err error) {
	e = &Endpoint{pool: p, caBundle: c.CABundle}
	switch {
	case c.Service != nil:
		e.service, e.port = c.Service, ptr.Deref(c.Service.Port, 443)
		e.serverName = c.Service.Name + "." + c.Service.Namespace + ".svc"
		e.host = net.JoinHostPort(e.serverName, strconv.Itoa(int(e.port)))
		e.server = e.host
		urlPath = ptr.Deref(c.Service.Path, "")
	case c.URL == nil || *c.URL == "":
		return nil, "", errors.New("webhook configuration must have either service or URL")
	default:
		u, err := url.Parse(*c.URL)
		if err != nil {
			return nil, "", fmt.Errorf("Unparsable URL: %w", err)
		}
		e.host, e.serverName, urlPath = u.Host, u.Hostname(), u.Path
		if e.server = u.Host; u.Port() == "" {
			e.server = net.JoinHostPort(u.Hostname(), "443")
		}
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %t %q %q", e.host, e.service != nil, e.serverName, e.caBundle)
	sum.Sum(e.key[:0])
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.endpoints[e.key]; known != nil {
		e = known
	} else {
		p.endpoints[e.key] = e
	}
	e.users++
	return e, path.Join("/", urlPath), nil
}

// Release ends the use of an endpoint by a webhook. When none uses it any more, its connections are closed as soon as they are idle.
func (p *Pool) Release(e *Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.users--; e.users == 0 {
		e.released = true
		delete(p.endpoints, e.key)
		e.closeIdle()
	}
}

// Close closes all connections that are idle, and others when they become idle.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, e := range p.endpoints {
		e.closeIdle()
	}
}

// closeIdle closes the connections that are idle.
func (e *Endpoint) closeIdle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.made != nil {
		e.made.http.CloseIdleConnections()
	}
}

// done is called after each call: the connection of an endpoint that is not used any more is not kept.
func (e *Endpoint) done() {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	if e.released || e.pool.closed {
		e.closeIdle()
	}
}

// connect returns what calls go over, which is made for the first call.
func (e *Endpoint) connect() (*connections, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.made == nil {
		made, err := e.newConnections()
		if err != nil {
			return nil, &CredentialsError{err}
		}
		e.made = made
	}
	return e.made, nil
}

// newConnections returns connections of HTTP/1.1: over one connection of HTTP/2 all calls would go to the same pod, and fail together.
func (e *Endpoint) newConnections() (*connections, error) {
	config, err := transportConfig(e.pool.credentials.userOf(e.server), e.pool.dial)
	if err != nil {
		return nil, err
	}
	config.TLS.ServerName, config.TLS.NextProtos, config.TLS.CAData = e.serverName, []string{"http/1.1"}, bytes.TrimSpace(e.caBundle)
	security, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	c := &connections{http: &http.Transport{DialContext: config.DialHolder.Dial, TLSClientConfig: security, TLSHandshakeTimeout: handshakeTimeout,
		DisableCompression: true, MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: maxIdleConnections, MaxIdleConns: 4 * maxIdleConnections,
		IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeader, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}}
	c.RoundTripper, err = transport.HTTPWrappersForConfig(config, c.http)
	return c, err
}
