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
	MaxStreams     int           // requests at a time; 100 if zero, which is what clients count on until they are told
	MaxHeaderBytes int           // of one request; 1 MiB if zero
	IdleTimeout    time.Duration // how long a connection without requests is kept; 90 s if zero
	WriteTimeout   time.Duration // how long the client may leave what was sent unread; 30 s if zero
	// FirstRequestTimeout is how long a connection may stay without its first request, until which nobody knows whose it is; 30 s if zero.
	FirstRequestTimeout time.Duration

	// MaxConnections bounds the listener's open connections, of either protocol, and MaxConnectionsPerAddress those of one client address. Zero is no bound. This machine's
	// own addresses, which many clients share, may have half of all.
	MaxConnections, MaxConnectionsPerAddress int
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

// Serve has a server serve TLS connections of a listener, with this package's HTTP/2 for those who speak it. It returns as
// http.Server.Serve does. The server's TLSConfig is what connections are made with; Shutdown and Close of the server end it.
func Serve(server *http.Server, listener net.Listener, opts Options) error {
	opts.complete()
	config := server.TLSConfig.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	all := &connections{open: map[*conn]struct{}{}}
	server.RegisterOnShutdown(all.shutdown)
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(server *http.Server, tlsConn *tls.Conn, h http.Handler) {
			ctx := context.Background()
			if b, ok := h.(interface{ BaseContext() context.Context }); ok {
				ctx = b.BaseContext() // net/http's way of handing it on
			}
			c := newConn(ctx, server, tlsConn, opts)
			all.add(c)
			defer all.remove(c)
			c.serve()
		},
	}
	return server.Serve(tlsListener{listener, config, newConnLimit(opts, server.ErrorLog)})
}

// tlsListener makes connections whose records can be sent several at a time.
type tlsListener struct {
	net.Listener
	config *tls.Config
	limit  *connLimit
}

func (l tlsListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		release, ok := l.limit.take(c)
		if !ok {
			c.Close()
			continue
		}
		return tls.Server(&outbox{Conn: newSocket(c), closed: release}, l.config), nil
	}
}

// connections are told when the server shuts down.
type connections struct {
	mu       sync.Mutex
	open     map[*conn]struct{}
	stopping bool
}

func (s *connections) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
	if s.stopping {
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
	s.stopping = true
	for c := range s.open {
		c.drain()
	}
}
