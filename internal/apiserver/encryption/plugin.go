package encryption

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	kmsapi "k8s.io/kms/apis/v2"
)

// maxAnswer bounds the size of a plugin's answer: annotations, a key id and a source, with room.
const maxAnswer = 128 << 10

// maxReconnect bounds the time between attempts to connect to a plugin that does not listen.
const maxReconnect = 3 * time.Second

// plugin is the connection to a KMS plugin, over a unix socket. It is made when it is first needed, and again when it breaks.
type plugin struct {
	client  kmsapi.KeyManagementServiceClient
	conn    *grpc.ClientConn
	timeout time.Duration // of each call
}

// dial returns the connection to the plugin at an endpoint such as unix:///run/kms.sock. observe is called with the result of each call.
func dial(endpoint string, timeout time.Duration, observe func(method string, took time.Duration, err error)) (*plugin, error) {
	path, err := socket(endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithAuthority("localhost"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnect}, MinConnectTimeout: timeout}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			began := time.Now()
			err := call(ctx, method, req, reply, cc, opts...)
			observe(method, time.Since(began), err)
			return err
		}))
	if err != nil {
		return nil, fmt.Errorf("failed to create connection to %s, error: %w", endpoint, err)
	}
	return &plugin{client: kmsapi.NewKeyManagementServiceClient(conn), conn: conn, timeout: timeout}, nil
}

// socket returns the path of the socket that an endpoint names; one that begins with @ is abstract.
func socket(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("invalid endpoint %q for remote KMS provider, error: %w", endpoint, err)
	}
	if u.Scheme != "unix" {
		return "", fmt.Errorf("unsupported scheme %q for remote KMS provider", u.Scheme)
	}
	if strings.HasPrefix(u.Path, "/@") {
		return u.Path[1:], nil
	}
	return u.Path, nil
}

func (p *plugin) close() { _ = p.conn.Close() }

func (p *plugin) status(ctx context.Context) (*kmsapi.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.client.Status(ctx, &kmsapi.StatusRequest{})
}

func (p *plugin) encrypt(ctx context.Context, uid string, plain []byte) (source, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	r, err := p.client.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: plain, Uid: uid})
	if err != nil {
		return source{}, err
	}
	return source{keyID: r.KeyId, encrypted: r.Ciphertext, annotations: r.Annotations}, nil
}

func (p *plugin) decrypt(ctx context.Context, uid string, s source) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	r, err := p.client.Decrypt(ctx, &kmsapi.DecryptRequest{Ciphertext: s.encrypted, Uid: uid, KeyId: s.keyID, Annotations: s.annotations})
	if err != nil {
		return nil, err
	}
	return r.Plaintext, nil
}
