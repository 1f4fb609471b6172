package aggregation

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/transport"
	"k8s.io/streaming/pkg/httpstream"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/response"
	"skiff/internal/upgrade"
)

// upgradeTimeout is how long a server may take to answer an upgrade.
const upgradeTimeout = time.Minute

// Serve has the server of the group version answer a request, whose user has been authorized. The request's context has its deadline, unless it is long-running.
func (b *Backend) Serve(w *response.Writer, r *http.Request, user *authn.User, long bool) {
	if !b.available.Load() {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	t, err := b.transport()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	leave := func() {}
	if long {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(b.owner.stopping, cancel)() // as this server's own watches
		r = r.WithContext(ctx)
	} else {
		select {
		case b.inFlight <- struct{}{}:
			leave = sync.OnceFunc(func() { <-b.inFlight })
			defer leave()
		default:
			response.Fail(w, r, w.TooManyRequests())
			return
		}
	}
	w.Seat.Leave() // the other server has a flow control of its own
	host, err := b.resolve(r.Context())
	if err != nil {
		b.owner.Log.Warn("failed to resolve the Service of an APIService", "apiservice", b.name, "err", err)
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	location := &url.URL{Scheme: "https", Host: host, Path: r.URL.Path, RawQuery: r.URL.Query().Encode()}
	b.forward(&answer{Writer: w, hijacked: leave}, r, location, t, user)
}

// forward forwards a request to an endpoint.
func (b *Backend) forward(w *answer, r *http.Request, location *url.URL, t *http.Transport, user *authn.User) {
	upgraded := httpstream.IsUpgradeRequest(r)
	// With a server in the context, a response that ends early is aborted, so that nobody takes it for the whole one.
	ctx := context.WithValue(r.Context(), http.ServerContextKey, proxiedBy)
	if limit := limitOf(r.URL.Path, upgraded); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	to := r.WithContext(ctx)
	to.Header = r.Header.Clone()
	to.URL, to.Host = location, location.Host
	if id := w.Writer.Header().Get("Audit-Id"); id != "" {
		to.Header.Set("Audit-Id", id)
	}
	identify := func(r *http.Request) {
		transport.SetAuthProxyHeaders(r, user.Username, user.UID, user.Groups, extraOf(user))
	}
	var through http.RoundTripper = retrying{b, t, identify}
	if upgraded {
		identify(to)
		through = b.upgrading(w)
	}
	handler := proxy.NewUpgradeAwareHandler(location, through, true, upgraded, failure{r.Context()})
	handler.RejectForwardingRedirects = !b.owner.ForwardRedirects
	handler.ServeHTTP(upgrade.Hijackable(w), to)
}

// limitOf returns how long the other server may take for a request, beside the deadline that this has anyhow; 0 if there is no limit. The limit of an upgrade ends
// with the answer to it.
func limitOf(path string, upgraded bool) time.Duration {
	switch {
	case upgraded:
		return upgradeTimeout
	case isDiscovery(path):
		return fetchTimeout
	}
	return 0
}

// upgrading returns a transport for one request that is to be upgraded. Its connection is not kept: the protocol after the upgrade is not HTTP. Until the client's
// connection is hijacked, the end of the context closes it, and the other server cannot say more than headers.
func (b *Backend) upgrading(w *answer) *http.Transport {
	config, _ := b.tlsConfig() // an error is also one of the transport's, which has been there
	dial := upgrade.Dial(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := b.dialEndpoint(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &upgradingConn{Conn: conn}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		leave := w.hijacked
		w.hijacked = func() {
			stop()
			c.upgraded.Store(true)
			leave()
		}
		return c, nil
	})
	return &http.Transport{DialContext: dial, TLSClientConfig: config}
}

// upgradingConn is a connection on which an upgrade was asked for.
type upgradingConn struct {
	net.Conn
	upgraded atomic.Bool
	received int
}

// Read implements net.Conn.
func (c *upgradingConn) Read(p []byte) (int, error) {
	if c.upgraded.Load() {
		return c.Conn.Read(p)
	}
	if c.received > maxHeader {
		return 0, errTooLarge
	}
	n, err := c.Conn.Read(p)
	c.received += n
	return n, err
}

// proxiedBy stands for the server in the context of a request that is forwarded.
var proxiedBy = &http.Server{}

// isDiscovery reports whether a path is that of a group version: clients ask for it to learn what there is, and must not wait long.
func isDiscovery(path string) bool {
	return strings.HasPrefix(path, "/apis/") && strings.Count(strings.Trim(path, "/"), "/") == 2
}

func extraOf(user *authn.User) map[string][]string {
	extra := make(map[string][]string, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = values
	}
	return extra
}

// failure answers when the other server does not. The context is that of the request as it came.
type failure struct{ ctx context.Context }

// Error implements proxy.ErrorResponder.
func (f failure) Error(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(f.ctx.Err(), context.DeadlineExceeded) {
		response.Fail(w, r, registry.Timeout())
		return
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// answer is the response to a request that is forwarded. What this server has set in it stays, and is not there twice.
type answer struct {
	*response.Writer
	header   http.Header
	hijacked func() // called when the client's connection is hijacked
}

// Hijack implements http.Hijacker.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.hijacked()
	return a.Writer.Hijack()
}

// Header implements http.ResponseWriter. It returns what the other server sets.
func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if code < http.StatusOK {
		return // an interim response, which clients need not get
	}
	into := a.Writer.Header()
	for name, values := range a.header {
		if into[name] == nil {
			into[name] = values
		}
	}
	a.Writer.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if !a.Started() {
		a.WriteHeader(http.StatusOK)
	}
	return a.Writer.Write(b)
}

// FlushError implements what http.ResponseController looks for.
func (a *answer) FlushError() error {
	if !a.Started() {
		a.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(a.Writer).Flush()
}
