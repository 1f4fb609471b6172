package reviewclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

const (
	// DefaultTimeout is how long a call may take if nothing else is said.
	DefaultTimeout = 30 * time.Second
	// MaxResponse bounds the body of a response.
	MaxResponse = 1 << 20
	// maxErrorText bounds what an error shows of the body of a response.
	maxErrorText = 2048
	// maxHeader bounds the headers of a response.
	maxHeader = 64 << 10
	// maxConnections bounds the connections to the server, and with it the calls at a time: further calls wait for one to end.
	maxConnections = 256
	// maxIdleConnections are kept open, for idleTimeout.
	maxIdleConnections = 32
	idleTimeout        = 90 * time.Second
	dialTimeout        = 30 * time.Second
	handshakeTimeout   = 10 * time.Second
)

// Options say how the server is called.
type Options struct {
	Kubeconfig string        // path of the file
	Timeout    time.Duration // of a call; DefaultTimeout if 0
	// Dial connects to the server, or to the proxy in front of it; directly if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client sends reviews to one server. It may be used by several goroutines.
type Client struct {
	url       *url.URL
	timeout   time.Duration
	transport *http.Transport
	wrapped   http.RoundTripper // the transport, with credentials
}

// New returns a client for the server of a kubeconfig file. It does not connect yet.
func New(o Options) (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if config.Dial = o.Dial; o.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	c := &Client{timeout: o.Timeout, url: &url.URL{Scheme: server.Scheme, User: server.User, Host: server.Host, Path: "/" + strings.Trim(server.Path, "/"),
		RawQuery: url.Values{"timeout": {o.Timeout.String()}}.Encode()}}
	return c, c.connect(config)
}

// connect makes the transport, which opens connections when they are needed.
func (c *Client) connect(config *rest.Config) error {
	settings, err := config.TransportConfig()
	if err != nil {
		return err
	}
	settings.TLS.NextProtos = []string{"http/1.1"}
	security, err := transport.TLSConfigFor(settings)
	if err != nil {
		return err
	}
	proxy := http.ProxyFromEnvironment
	if settings.Proxy != nil {
		proxy = settings.Proxy
	}
	c.transport = &http.Transport{Proxy: proxy, DialContext: settings.DialHolder.Dial, TLSClientConfig: security, TLSHandshakeTimeout: handshakeTimeout, DisableCompression: true,
		MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: maxIdleConnections, MaxIdleConns: maxIdleConnections, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxHeader, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	c.wrapped, err = transport.HTTPWrappersForConfig(settings, c.transport)
	return err
}

// Close closes the connections that are idle; others close after their call if they are not used again within idleTimeout.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Post sends a review in JSON once, and returns the body of the response and its status code, 0 if there was no response.
func (c *Client) Post(ctx context.Context, review []byte) (body []byte, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.String(), bytes.NewReader(review))
	if err != nil {
		return nil, 0, err
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, */*"}, "User-Agent": {"kube-apiserver"},
		"Idempotency-Key": nil} // not sent: it says that the call may be repeated if the server has closed a connection that was kept
	if user := c.url.User; user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	response, err := c.wrapped.RoundTrip(request)
	if err != nil {
		return nil, 0, &url.Error{Op: "Post", URL: c.url.Redacted(), Err: err}
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, MaxResponse+1))
	switch {
	case err != nil:
		return nil, response.StatusCode, fmt.Errorf("unexpected error when reading response body. Please retry. Original error: %w", err)
	case len(body) > MaxResponse:
		return nil, response.StatusCode, fmt.Errorf("the response body is larger than %d bytes", MaxResponse)
	case response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent:
		return nil, response.StatusCode, responseError(response, body)
	case len(body) == 0:
		return nil, response.StatusCode, fmt.Errorf("0-length response with status code: %d and content type: %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	return body, response.StatusCode, nil
}

// responseError returns the error for a response that is no success: the Status in its body, if it is one.
func responseError(r *http.Response, body []byte) error {
	status := &metav1.Status{}
	if Decode(body, schema.GroupVersionKind{Version: "v1", Kind: "Status"}, status) == nil && status.Status == metav1.StatusFailure {
		return apierrors.FromObject(status)
	}
	text := "unknown"
	if isText(r.Header.Get("Content-Type")) {
		text = strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), maxErrorText)]), "?"))
	}
	retryAfter := 0
	if r.StatusCode == http.StatusTooManyRequests || r.StatusCode >= http.StatusInternalServerError {
		if seconds, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && seconds > 0 {
			retryAfter = seconds
		}
	}
	return apierrors.NewGenericServerResponse(r.StatusCode, http.MethodPost, schema.GroupResource{}, "", text, retryAfter, true)
}

func isText(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.HasPrefix(media, "text/")
}

// IsTimeout reports whether a call failed since it took too long, here or at the server.
func IsTimeout(err error, code int) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() || apierrors.IsTimeout(err) || code == http.StatusGatewayTimeout
}
