//go:build !linux

package dns

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

const sharesAddresses = false

func shareAddress(_, _ string, _ syscall.RawConn) error { return nil }

// serveUDP answers the packets of a socket until it is closed.
func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn, m *counts) error {
	packet, answer, q := make([]byte, ednsSize), make([]byte, 0, maxUDPSize), &query{}
	for {
		n, client, err := conn.ReadFromUDPAddrPort(packet)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			continue // about a packet sent before
		}
		if !s.sources.allow(client.Addr().WithZone("")) {
			continue
		}
		begin := time.Now()
		msg, todo := s.answer(q, packet[:n], true, answer[:0], m)
		switch {
		case todo != nil:
			s.resolveAsync(ctx, q, todo, func(msg []byte) { conn.WriteToUDPAddrPort(msg, client) }, true, m)
		case msg != nil:
			conn.WriteToUDPAddrPort(msg, client)
			m.observe([]zoneKind{q.zone}, time.Since(begin))
		}
	}
}
