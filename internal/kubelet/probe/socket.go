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

// dialer makes connections that do not linger: a node asks thousands of times a minute, and sockets in TIME-WAIT would take all its ports.
// One second is enough for data under way; with none the connection would be aborted.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// A socket that lingers is no reason not to ask.
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}

// askTCP succeeds if a connection can be made.
func askTCP(ctx context.Context, action *corev1.TCPSocketAction, container *corev1.Container, podIP string, timeout time.Duration) answer {
	port, err := portOf(action.Port, container)
	if err != nil {
		return answer{outcome: unknown, err: err}
	}
	host := action.Host
	if host == "" {
		if host, err = address(podIP); err != nil {
			return answer{outcome: unknown, err: err}
		}
	}
	d := dialer()
	d.Timeout = timeout
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return answer{outcome: failure, output: err.Error()}
	}
	_ = conn.Close()
	return answer{outcome: success}
}

// portOf finds the port a probe means by number, or by the name the container gives it.
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
