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

// Options say who joins what. The zero value of a field means its default.
type Options struct {
	Dir    string // where the certificates are kept
	Server *url.URL
	Token  *Token // nil if the machine has joined before
	Node   string
	Hosts  []string // names and addresses that the kubelet is reached at
	Now    func() time.Time
	Log    *slog.Logger
}

// Identity is who a node is to its cluster, and whom it trusts. What it gives out is always current.
type Identity struct {
	o Options
	// knownHere says that the files are of the cluster to join, so their key may be used again.
	knownHere bool
	trusted   atomic.Pointer[trust]
	client    atomic.Pointer[held]
	serving   atomic.Pointer[held]
	// connections are those made as the node. They end when its certificate is new.
	connections *connrotation.Dialer
	transport   *http.Transport
	requests    certificatesclient.CertificateSigningRequestInterface
}

type trust struct {
	pem  []byte
	pool *x509.CertPool
}

// Open finds out who this machine is: by what an earlier start left, or else by joining with the token.
func Open(ctx context.Context, o Options) (*Identity, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	id := &Identity{o: o, connections: connrotation.NewDialer((&net.Dialer{Timeout: requestTime, KeepAlive: 30 * time.Second}).DialContext)}
	id.transport = &http.Transport{
		DialContext: id.connections.DialContext, TLSClientConfig: id.TLS(), ForceAttemptHTTP2: true, TLSHandshakeTimeout: requestTime,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second, HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	certificates, err := certificatesclient.NewForConfigAndClient(&rest.Config{Host: o.Server.String(), QPS: -1}, &http.Client{Transport: id.transport, Timeout: requestTime})
	if err != nil {
		return nil, err
	}
	id.requests = certificates.CertificateSigningRequests()
	known, err := id.load()
	if err != nil {
		return nil, err
	}
	if known {
		return id, nil
	}
	if o.Token == nil {
		return nil, errors.New("this machine is not in a cluster yet: give it --server and --token, which \"skiff token create\" prints on the server")
	}
	return id, id.joinPatiently(ctx)
}

// TLS is how to connect to the server as the node.
func (id *Identity) TLS(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		// The authorities may be renewed meanwhile, so they are asked for each time.
		InsecureSkipVerify: true, VerifyConnection: id.verify,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if held := id.client.Load(); held != nil {
				return held.tls, nil
			}
			return &tls.Certificate{}, nil
		},
	}
}

// verify accepts only the server, vouched for by the cluster's authority.
func (id *Identity) verify(state tls.ConnectionState) error {
	options := x509.VerifyOptions{DNSName: id.o.Server.Hostname(), Roots: id.Pool(), Intermediates: x509.NewCertPool(), CurrentTime: id.o.Now()}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server shows no certificate")
	}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := state.PeerCertificates[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

// Config is how to reach the API as the node.
func (id *Identity) Config() *rest.Config {
	return &rest.Config{Host: id.o.Server.String(), Transport: id.transport}
}

// Pool is whom the server's certificate must be signed by.
func (id *Identity) Pool() *x509.CertPool {
	if t := id.trusted.Load(); t != nil {
		return t.pool
	}
	return x509.NewCertPool()
}

// Bundle is the same in PEM.
func (id *Identity) Bundle() []byte {
	if t := id.trusted.Load(); t != nil {
		return t.pem
	}
	return nil
}

// Serving adds to a configuration what the kubelet shows, and asks its clients for certificates; whose they are is for the kubelet to check. Connections are
// refused until the first certificate is there.
func (id *Identity) Serving(base *tls.Config, clients func() *x509.CertPool) *tls.Config {
	base = base.Clone()
	base.ClientAuth = tls.RequestClientCert
	outer := base.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		held := id.serving.Load()
		if held == nil {
			return nil, errors.New("the kubelet has no certificate yet")
		}
		c := base.Clone()
		c.Certificates, c.ClientCAs = []tls.Certificate{*held.tls}, clients()
		return c, nil
	}
	return outer
}

func (id *Identity) setTrust(bundle []byte) error {
	certificates, err := parseBundle(bundle)
	if err != nil {
		return fmt.Errorf("whom to trust: %w", err)
	}
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	id.trusted.Store(&trust{bundle, pool})
	return nil
}

// Dial connects to the server as the node, to speak one of the protocols. The connection ends when the node's certificate is renewed.
func (id *Identity) Dial(ctx context.Context, protocols ...string) (net.Conn, error) {
	raw, err := id.connections.DialContext(ctx, "tcp", id.o.Server.Host)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, id.TLS(protocols...))
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}
