package networktest

import (
	"net"
	"testing"
)

// Serve has connections to an address in the namespace served until the test ends, all at the same time.
func (p *Place) Serve(t testing.TB, network, address string, serve func(net.Conn)) {
	t.Helper()
	p.Must(t, func() error {
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

// ServePackets has packets to an address in the namespace answered until the test ends, one after the other.
func (p *Place) ServePackets(t testing.TB, network, address string, answer func(packet []byte, from net.Addr) []byte) {
	t.Helper()
	p.Must(t, func() error {
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
				_, _ = conn.WriteTo(answer(buf[:n], from), from) // who asked may be gone
			}
		}()
		return nil
	})
}
