package aggregation

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/transport"
	"k8s.io/streaming/pkg/httpstream"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/response"
	"skiff/internal/upgrade"
)

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
	if !long {
		select {
		case b.inFlight <- struct{}{}:
			defer func() { <-b.inFlight }()
		default:
			response.Fail(w, r, response.TooManyRequests())
			return
		}
		w.Seat.Leave() // the other server has a flow control of its own
	}
	host, err := b.resolve(r.Context())
	if err != nil {
		b.owner.Log.Warn("failed to resolve the Service of an APIService", "apiservice", b.name, "err", err)
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	b.forward(w, r, &url.URL{Scheme: "https", Host: host, Path: r.URL.Path, RawQuery: r.URL.Query().Encode()}, t, user)
}

// forward forwards a request to an endpoint.
func (b *Backend) forward(w *response.Writer, r *http.Request, location *url.URL, t *http.Transport, user *authn.User) {
	// With a server in the context, a response that ends early is aborted, so that nobody takes it for the whole one.
	ctx := context.WithValue(r.Context(), http.ServerContextKey, proxiedBy)
	if isDiscovery(r.URL.Path) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
	}
	to := r.WithContext(ctx)
	to.Header = r.Header.Clone()
	to.URL, to.Host = location, location.Host
	if id := w.Header().Get("Audit-Id"); id != "" {
		to.Header.Set("Audit-Id", id)
	}
	transport.SetAuthProxyHeaders(to, user.Username, user.UID, user.Groups, extraOf(user))
	upgraded := httpstream.IsUpgradeRequest(r)
	var through http.RoundTripper = retrying{b, t}
	if upgraded {
		// One connection that is not kept: the protocol after the upgrade is not HTTP.
		through = &http.Transport{DialContext: upgrade.Dial(b.dialEndpoint), TLSClientConfig: t.TLSClientConfig, TLSHandshakeTimeout: handshakeTimeout}
	}
	handler := proxy.NewUpgradeAwareHandler(location, through, true, upgraded, failure{r.Context()})
	handler.RejectForwardingRedirects = !b.owner.ForwardRedirects
	handler.ServeHTTP(upgrade.Hijackable(&answer{Writer: w}), to)
}

// proxiedBy stands for the server in the context of a request that is forwarded.
var proxiedBy = &http.Server{}

// isDiscovery reports whether a path is that of a group version: clients ask for it to learn what there is, and must not wait long.
func isDiscovery(path string) bool {
	return strings.Count(strings.Trim(path, "/"), "/") == 2
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
	header http.Header
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
