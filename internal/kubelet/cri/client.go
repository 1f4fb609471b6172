package cri

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How long calls may take. Those that change something get more than those that only read; an image may be large and far away.
const (
	readTimeout   = 10 * time.Second
	changeTimeout = 2 * time.Minute
	removeTimeout = 2 * time.Minute
	pullTimeout   = 30 * time.Minute
	execMargin    = 10 * time.Second // beyond the timeout of the command
	stopMargin    = time.Minute      // beyond the grace period
	execTimeout   = time.Hour        // for a command without a timeout
)

const maxMessage = 16 << 20 // a list of many images is large

// Client calls a runtime over its socket.
type Client struct {
	connection *grpc.ClientConn
	runtime    runtimeapi.RuntimeServiceClient
	images     runtimeapi.ImageServiceClient
	metrics    *metrics
}

var _ Runtime = (*Client)(nil)

// Connect returns a client of the runtime at an endpoint: a path, or a path after unix://. The runtime need not listen yet: a call that finds nobody listening
// fails as unavailable, and the next one connects again.
func Connect(endpoint string) (*Client, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("container runtime endpoint %q: want a unix socket such as unix:///run/containerd/containerd.sock", endpoint)
	}
	metrics := newMetrics()
	quick := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	connection, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: 3 * time.Second}), grpc.WithAuthority("localhost"), grpc.WithUnaryInterceptor(metrics.intercept),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("failed to connect to the container runtime at %s: %w", endpoint, err)
	}
	return &Client{connection: connection, runtime: runtimeapi.NewRuntimeServiceClient(connection), images: runtimeapi.NewImageServiceClient(connection),
		metrics: metrics}, nil
}

// Close ends all calls in flight.
func (c *Client) Close() error { return c.connection.Close() }

// IsNotFound reports whether a call failed because its object does not exist.
func IsNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// IsUnavailable reports whether a call failed because the runtime could not be reached.
func IsUnavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// Message returns the message of a runtime's error, without gRPC's prefix.
func Message(err error) string { return status.Convert(err).Message() }

// call makes a call with a timeout.
func call[Req, Resp any](ctx context.Context, timeout time.Duration, do func(context.Context, Req, ...grpc.CallOption) (Resp, error), request Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return do(ctx, request)
}

func (c *Client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return call(ctx, readTimeout, c.runtime.Version, &runtimeapi.VersionRequest{Version: "v1"})
}

func (c *Client) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	return call(ctx, readTimeout, c.runtime.Status, &runtimeapi.StatusRequest{})
}

func (c *Client) Config(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return call(ctx, readTimeout, c.runtime.RuntimeConfig, &runtimeapi.RuntimeConfigRequest{})
}

func (c *Client) Events(ctx context.Context, connected func(), each func(*runtimeapi.ContainerEventResponse)) error {
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	// The runtime sends headers with the first event only, so all that is known here is that the request was sent.
	connected()
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		each(event)
	}
}
