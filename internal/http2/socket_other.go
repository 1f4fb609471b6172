//go:build !linux

package http2

import "net"

// newSocket is the connection as it is: how others than Linux do without the scheduler has not been measured.
func newSocket(c net.Conn) net.Conn { return c }
