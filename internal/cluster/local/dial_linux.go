package local

import (
	"context"
	"fmt"
	"net"
)

// Dial connects to an IP address and port from a node's network.
func Dial(ctx context.Context, dataDir, node, network, address string) (conn net.Conn, err error) {
	l, err := Load(dataDir)
	if err != nil {
		return nil, err
	}
	n, err := l.Find(node)
	if err != nil {
		return nil, err
	}
	m, made, err := l.find(n)
	if err != nil {
		return nil, err
	}
	if !made {
		return nil, fmt.Errorf("node %s is off", node)
	}
	err = inNetwork(fmt.Sprintf("/proc/%d/ns/net", m.pid), func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address) // the socket stays in the namespace in which it was opened
		return err
	})
	return conn, err
}
