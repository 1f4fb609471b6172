package http2

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options bound what one connection may use.
type Options struct {
	MaxStreams     int           // requests in flight; 100 if zero, which clients assume until they have read the server's settings
	MaxHeaderBytes int           // size of a request's headers; 1 MiB if zero
	IdleTimeout    time.Duration // how long a connection without requests is kept; 90 s if zero
	WriteTimeout   time.Duration // how long the client may leave unread what was sent; 30 s if zero
	// FirstRequestTimeout is how long a connection without a request, which is not authenticated yet, is kept; 30 s if zero.
	FirstRequestTimeout time.Duration

	// MaxConnections bounds the listener's open connections, of either protocol, and MaxConnectionsPerAddress those of one client address. Zero is no bound. This machine's
	// own addresses, which many clients share, may have half of all.
	MaxConnections, MaxConnectionsPerAddress int

	// PlainSockets turns off what this package does on Linux below TLS: sockets that are read and written by raw system calls (socket_linux.go), and reads that
	// are coalesced with SO_RCVLOWAT (coalesce.go). Connections are then read and written by package net, and the reader is woken for every byte, as on other
	// systems.
	//
	// What they are worth, measured in turn with and without (docs/decisions/0006-http2.md):
	//   - raw system calls: the server's processor time for a get falls by 15 % (0.61 to 0.52 of the client's), for a config map by 7 %, for a pod by 6 %;
	//   - coalesced WINDOW_UPDATE frames: 1.2 to 1.6 times as many watch events a second with 500 watchers, 14 to 18 instead of 26 to 30 microseconds each,
	//     and lists 1.2 to 1.6 times as fast;
	//   - coalesced bursts: with 16 to 32 gets in flight 15 % less of the server's time, 4 to 15 % more gets; with 1 to 12 no difference.
	//
	// What they cost: 176 bytes per connection for a socket, and a timer once reads were coalesced. An idle connection takes about 70 kB on both sides together
	// with either kind of socket (BenchmarkIdleConnections); BenchmarkSockets compares the two kinds on a quiet machine.
	PlainSockets bool
}

func (o *Options) complete() {
	if o.MaxStreams == 0 {
		o.MaxStreams = 100
	}
	if o.MaxHeaderBytes == 0 {
		o.MaxHeaderBytes = 1 << 20
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 90 * time.Second
	}
	if o.FirstRequestTimeout == 0 {
		o.FirstRequestTimeout = 30 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
}

// Serve has a server serve the TLS connections of a listener, with this package's HTTP/2 for clients that speak it. It returns as http.Server.Serve does. The
// server's TLSConfig is used for connections; Shutdown and Close of the server end it.
func Serve(server *http.Server, listener net.Listener, opts Options) error {
	opts.complete()
	config := server.TLSConfig.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	open := &connections{open: map[*conn]struct{}{}}
	server.RegisterOnShutdown(open.shutdown)
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(server *http.Server, tlsConn *tls.Conn, h http.Handler) {
			ctx := context.Background()
			if b, ok := h.(interface{ BaseContext() context.Context }); ok {
				ctx = b.BaseContext() // how net/http passes the server's base context
			}
			c := newConn(ctx, server, tlsConn, opts)
			open.add(c)
			defer open.remove(c)
			c.serve()
		},
	}
	return server.Serve(tlsListener{listener, config, newConnLimit(opts, server.ErrorLog), opts.PlainSockets})
}

// tlsListener accepts TLS connections whose records can be written several at a time.
type tlsListener struct {
	net.Listener
	config *tls.Config
	limit  *connLimit
	plain  bool // see Options.PlainSockets
}

// Accept returns the next connection for which there is room.
func (l tlsListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		release, ok := l.limit.acquire(c)
		if !ok {
			c.Close()
			continue
		}
		if !l.plain {
			c = newSocket(c)
		}
		return tls.Server(&recordWriter{Conn: c, onClose: release}, l.config), nil
	}
}

// connections are the open connections of a server, which it drains when it shuts down.
type connections struct {
	mu           sync.Mutex
	open         map[*conn]struct{}
	shuttingDown bool
}

func (s *connections) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
	if s.shuttingDown {
		c.drain()
	}
}

func (s *connections) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

func (s *connections) shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shuttingDown = true
	for c := range s.open {
		c.drain()
	}
}
