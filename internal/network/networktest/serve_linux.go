package networktest

import (
	"net"
	"testing"
)

// Serve accepts connections to an address in the namespace until the test ends, and calls serve for each in a goroutine of its own.
func (n *Namespace) Serve(t testing.TB, network, address string, serve func(net.Conn)) {
	t.Helper()
	n.Must(t, func() error {
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					serve(conn)
				}()
			}
		}()
		return nil
	})
}

// ServePackets answers packets to an address in the namespace until the test ends, one after the other.
func (n *Namespace) ServePackets(t testing.TB, network, address string, answer func(packet []byte, from net.Addr) []byte) {
	t.Helper()
	n.Must(t, func() error {
		conn, err := net.ListenPacket(network, address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { conn.Close() })
		go func() {
			buf := make([]byte, 1<<16)
			for {
				n, from, err := conn.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = conn.WriteTo(answer(buf[:n], from), from) // the client may have closed its socket
			}
		}()
		return nil
	})
}
