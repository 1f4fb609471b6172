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

// Bounds of TCP connections.
const (
	maxConnections           = 512
	maxConnectionsPerClient  = 64
	maxInflightPerConnection = 32 // queries of one connection that wait for upstream servers
	tcpIdleTimeout           = 10 * time.Second
	tcpWriteTimeout          = 5 * time.Second
)

// clients holds the open TCP connections.
type clients struct {
	mu      sync.Mutex
	conns   map[net.Conn]netip.Addr
	perAddr map[netip.Addr]int // the number of connections of each client address
	closed  bool               // closeAll was called
}

// add registers a connection, and reports false if there are too many.
func (c *clients) add(conn net.Conn) bool {
	addr, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns, c.perAddr = map[net.Conn]netip.Addr{}, map[netip.Addr]int{}
	}
	if c.closed || len(c.conns) >= maxConnections || c.perAddr[addr.Addr()] >= maxConnectionsPerClient {
		return false
	}
	c.conns[conn] = addr.Addr()
	c.perAddr[addr.Addr()]++
	return true
}

func (c *clients) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	addr := c.conns[conn]
	delete(c.conns, conn)
	if c.perAddr[addr]--; c.perAddr[addr] <= 0 {
		delete(c.perAddr, addr)
	}
}

// closeAll closes all connections and makes add refuse new ones.
func (c *clients) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.conns {
		conn.Close()
	}
}

// serveTCP accepts and serves connections until the listener is closed.
func (s *Server) serveTCP(ctx context.Context, listener net.Listener, m *counts) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		conn, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil: // temporary, such as too many open files
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(bindRetryInterval):
			}
			continue
		}
		from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // the zero address is not allowed
		if !s.sources.allow(from.Addr().WithZone("")) || !s.clients.add(conn) {
			conn.Close()
			continue
		}
		connections.Go(func() {
			s.serveConnection(ctx, conn, m)
		})
	}
}

// serveConnection answers the queries of one connection. Queries may be pipelined, and answers may come in another order.
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
		conn.SetWriteDeadline(time.Now().Add(tcpWriteTimeout))
		whole := net.Buffers{binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg}
		_, err := whole.WriteTo(conn)
		return err == nil
	}
	slots := make(chan struct{}, maxInflightPerConnection)
	in, q := bufio.NewReaderSize(conn, 2*ednsSize), &query{}
	var packet, answer []byte
	for {
		conn.SetReadDeadline(time.Now().Add(s.idleTimeout)) // for the whole query
		var size [2]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > maxUDPSize {
			return // no query is that long
		}
		if cap(packet) < n {
			packet = make([]byte, max(n, minUDPSize))
		}
		if _, err := io.ReadFull(in, packet[:n]); err != nil {
			return
		}
		begin := time.Now()
		msg, todo := s.answer(q, packet[:n], false, answer[:0], m)
		switch {
		case todo != nil:
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			waiting.Add(1)
			s.resolveAsync(ctx, q, todo, func(msg []byte) {
				send(msg)
				<-slots
				waiting.Done()
			}, false, m)
		case msg == nil || !send(msg):
			return
		default:
			answer = msg
			m.observe([]zoneKind{q.zone}, time.Since(begin))
		}
	}
}
