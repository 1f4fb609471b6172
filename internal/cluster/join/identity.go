package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// Options say which node joins which cluster. The zero value of a field means its default.
type Options struct {
	Dir    string // directory of the certificates
	Server *url.URL
	Token  *Token // nil if the machine has joined before
	Node   string
	Hosts  []string // names and addresses of the kubelet, for its serving certificate
	Now    func() time.Time
	Log    *slog.Logger
}

// Identity is a node's certificates and the authorities that it trusts. What it returns follows renewals.
type Identity struct {
	o Options
	// filesOfCluster says that the files are of the cluster to join, so that their key may be used again.
	filesOfCluster bool
	trusted        atomic.Pointer[authorities]
	client         atomic.Pointer[certificate]
	serving        atomic.Pointer[certificate]
	// connections are those made as the node. They are closed when its certificate is renewed.
	connections *connrotation.Dialer
	transport   *http.Transport
	requests    certificatesclient.CertificateSigningRequestInterface
}

// authorities are those that the node trusts.
type authorities struct {
	pem  []byte
	pool *x509.CertPool
}

// Open returns the identity of this machine's node: from the files of an earlier start, or else by joining with the token.
func Open(ctx context.Context, o Options) (*Identity, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	id := &Identity{o: o, connections: connrotation.NewDialer((&net.Dialer{Timeout: requestTimeout, KeepAlive: 30 * time.Second}).DialContext)}
	id.transport = &http.Transport{
		DialContext: id.connections.DialContext, TLSClientConfig: id.TLS(), ForceAttemptHTTP2: true, TLSHandshakeTimeout: requestTimeout,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second, HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	certificates, err := certificatesclient.NewForConfigAndClient(&rest.Config{Host: o.Server.String(), QPS: -1}, &http.Client{Transport: id.transport, Timeout: requestTimeout})
	if err != nil {
		return nil, err
	}
	id.requests = certificates.CertificateSigningRequests()
	joined, err := id.load()
	if err != nil {
		return nil, err
	}
	if joined {
		return id, nil
	}
	if o.Token == nil {
		return nil, errors.New("this machine is not in a cluster yet: give it --server and --token, which \"skiff token create\" prints on the server")
	}
	return id, id.retryJoin(ctx)
}

// TLS returns the configuration of connections to the server as the node.
func (id *Identity) TLS(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		// verify uses the authorities at the time of the connection, as they may be renewed.
		InsecureSkipVerify: true, VerifyConnection: id.verify,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if current := id.client.Load(); current != nil {
				return current.tls, nil
			}
			return &tls.Certificate{}, nil
		},
	}
}

// verify accepts only a server with a certificate of the cluster's authority for its address.
func (id *Identity) verify(state tls.ConnectionState) error {
	options := x509.VerifyOptions{DNSName: id.o.Server.Hostname(), Roots: id.Pool(), Intermediates: x509.NewCertPool(), CurrentTime: id.o.Now()}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server has no certificate")
	}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := state.PeerCertificates[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

// Config returns the configuration of a client that acts as the node.
func (id *Identity) Config() *rest.Config {
	return &rest.Config{Host: id.o.Server.String(), Transport: id.transport}
}

// Pool returns the authorities that the server's certificate must be signed by.
func (id *Identity) Pool() *x509.CertPool {
	if t := id.trusted.Load(); t != nil {
		return t.pool
	}
	return x509.NewCertPool()
}

// Bundle returns the authorities of Pool in PEM.
func (id *Identity) Bundle() []byte {
	if t := id.trusted.Load(); t != nil {
		return t.pem
	}
	return nil
}

// Serving adds the kubelet's serving certificate to a configuration, and requests client certificates, which the kubelet verifies. Connections fail until there is
// a serving certificate.
func (id *Identity) Serving(base *tls.Config, clients func() *x509.CertPool) *tls.Config {
	base = base.Clone()
	base.ClientAuth = tls.RequestClientCert
	outer := base.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := id.serving.Load()
		if current == nil {
			return nil, errors.New("the kubelet has no certificate yet")
		}
		c := base.Clone()
		c.Certificates, c.ClientCAs = []tls.Certificate{*current.tls}, clients()
		return c, nil
	}
	return outer
}

// setTrust sets the authorities to trust.
func (id *Identity) setTrust(bundle []byte) error {
	certificates, err := parseBundle(bundle)
	if err != nil {
		return fmt.Errorf("failed to parse the cluster's authorities: %w", err)
	}
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	id.trusted.Store(&authorities{bundle, pool})
	return nil
}

// Dial connects to the server as the node, with one of the protocols (ALPN). The connection is closed when the node's certificate is renewed.
func (id *Identity) Dial(ctx context.Context, protocols ...string) (net.Conn, error) {
	raw, err := id.connections.DialContext(ctx, "tcp", id.o.Server.Host)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, id.TLS(protocols...))
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}
