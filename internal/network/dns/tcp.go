package dns

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Bounds of connections.
const (
	maxConnections   = 512
	maxPerClient     = 64
	maxPerConnection = 32 // queries of one connection that wait for others
	idleTime         = 10 * time.Second
	writeTime        = 5 * time.Second
)

// clients are who is connected.
type clients struct {
	mu    sync.Mutex
	conns map[net.Conn]netip.Addr
	per   map[netip.Addr]int
	ended bool
}

// add says whether there is room for a connection.
func (c *clients) add(conn net.Conn) bool {
	addr, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns, c.per = map[net.Conn]netip.Addr{}, map[netip.Addr]int{}
	}
	if c.ended || len(c.conns) >= maxConnections || c.per[addr.Addr()] >= maxPerClient {
		return false
	}
	c.conns[conn] = addr.Addr()
	c.per[addr.Addr()]++
	return true
}

func (c *clients) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	addr := c.conns[conn]
	delete(c.conns, conn)
	if c.per[addr]--; c.per[addr] <= 0 {
		delete(c.per, addr)
	}
}

// end closes all connections and lets no more in.
func (c *clients) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for conn := range c.conns {
		conn.Close()
	}
}

// serveTCP answers those who connect until the listener is closed.
func (s *Server) serveTCP(ctx context.Context, listener net.Listener, m *counts) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		conn, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil: // such as too many open files: soon over
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(bindAgain):
			}
			continue
		}
		from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // what is no address is nobody's
		if !s.sources.allow(from.Addr().WithZone("")) || !s.clients.add(conn) {
			conn.Close()
			continue
		}
		connections.Go(func() {
			s.serveConnection(ctx, conn, m)
		})
	}
}

// serveConnection answers one client. Questions may be sent before earlier ones are answered, and answers may come in another order.
func (s *Server) serveConnection(ctx context.Context, conn net.Conn, m *counts) {
	var waiting sync.WaitGroup
	defer func() {
		waiting.Wait()
		conn.Close()
		s.clients.remove(conn)
	}()
	var writing sync.Mutex
	send := func(msg []byte) bool {
		writing.Lock()
		defer writing.Unlock()
		conn.SetWriteDeadline(time.Now().Add(writeTime))
		whole := net.Buffers{binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg}
		_, err := whole.WriteTo(conn)
		return err == nil
	}
	places := make(chan struct{}, maxPerConnection)
	in, q := bufio.NewReaderSize(conn, 2*ownSize), &query{}
	var packet, answer []byte
	for {
		conn.SetReadDeadline(time.Now().Add(s.idle)) // for the whole question
		var size [2]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > maxSize {
			return // no question is that long
		}
		if cap(packet) < n {
			packet = make([]byte, max(n, minSize))
		}
		if _, err := io.ReadFull(in, packet[:n]); err != nil {
			return
		}
		begin := time.Now()
		msg, todo := s.answer(q, packet[:n], false, answer[:0], m)
		switch {
		case todo != nil:
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			waiting.Add(1)
			s.later(ctx, q, todo, func(msg []byte) {
				send(msg)
				<-places
				waiting.Done()
			}, false, m)
		case msg == nil || !send(msg):
			return
		default:
			answer = msg
			m.took([]zoneKind{q.zone}, time.Since(begin))
		}
	}
}
