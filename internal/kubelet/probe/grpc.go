package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// probeGRPC runs a grpc probe, a call of the gRPC health service. Every error is a failure.
func probeGRPC(ctx context.Context, action *corev1.GRPCAction, podIP string, timeout time.Duration) result {
	host, err := address(podIP)
	if err != nil {
		return result{outcome: unknown, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	target := net.JoinHostPort(host, strconv.Itoa(int(action.Port)))
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithUserAgent(userAgent), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer().DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		return result{outcome: failure, output: fmt.Sprintf("error: failed to connect service at %q: %v", target, err)}
	}
	defer conn.Close()
	if err := connected(ctx, conn); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return result{outcome: failure, output: fmt.Sprintf("timeout: failed to connect service %q within %v: %v", target, timeout, err)}
		}
		return result{outcome: failure, output: fmt.Sprintf("error: failed to connect service at %q: %v", target, err)}
	}
	rs, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: ptr.Deref(action.Service, "")})
	if err != nil {
		return result{outcome: failure, output: grpcFailure(err, timeout)}
	}
	if rs.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return result{outcome: failure, output: fmt.Sprintf("service unhealthy (responded with %q)", rs.GetStatus())}
	}
	return result{outcome: success, output: "service healthy"}
}

// connected returns when the connection is made. It tries again until the time is over, so that a server that takes the whole of it to
// listen is found.
func connected(ctx context.Context, conn *grpc.ClientConn) error {
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.Idle:
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
}

func grpcFailure(err error, timeout time.Duration) string {
	switch s := status.Convert(err); s.Code() {
	case codes.Unimplemented:
		return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + s.Message()
	case codes.DeadlineExceeded:
		return fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	}
	return fmt.Sprintf("error: health rpc probe failed: %v", err)
}
