package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// dialer makes connections that do not linger: a node probes thousands of times a minute, and sockets in TIME-WAIT would take all its ports.
// One second is enough for data in flight; with zero the connection would be aborted.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// A socket that lingers is no reason not to probe.
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}

// probeTCP runs a tcpSocket probe: it succeeds if a connection can be made.
func probeTCP(ctx context.Context, action *corev1.TCPSocketAction, container *corev1.Container, podIP string, timeout time.Duration) result {
	port, err := portOf(action.Port, container)
	if err != nil {
		return result{outcome: unknown, err: err}
	}
	host := action.Host
	if host == "" {
		if host, err = address(podIP); err != nil {
			return result{outcome: unknown, err: err}
		}
	}
	d := dialer()
	d.Timeout = timeout
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return result{outcome: failure, output: err.Error()}
	}
	_ = conn.Close()
	return result{outcome: success}
}

// portOf returns the port of a probe, given by number or by the name of a container port.
func portOf(p intstr.IntOrString, container *corev1.Container) (int, error) {
	port := p.IntValue()
	if p.Type == intstr.String {
		port = 0
		for _, known := range container.Ports {
			if known.Name == p.StrVal {
				port = int(known.ContainerPort)
			}
		}
		if port == 0 {
			return 0, fmt.Errorf("port %q not found", p.StrVal)
		}
	}
	if port < 1 || port > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", port)
	}
	return port, nil
}
