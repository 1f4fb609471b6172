package images

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// collectEvery is how often content that no image uses is looked for.
	collectEvery = time.Hour
	// maxConnections is how many connections are open at a time; a further one is closed at once.
	maxConnections = 512
)

// Access is what a client needs to use a registry.
type Access struct {
	Address            string // host and port
	CAFile             string // certificates that the registry's own is verified with
	Username, Password string
}

// ServeOptions say where and to whom a store is served. All but Log are needed.
type ServeOptions struct {
	Address            string // host and port to listen on; port 0 is any that is free
	Store              *Store
	TLS                *tls.Config
	Hosts              []string // names and addresses that clients may reach the registry by
	Username, Password string   // that clients have to send
	Log                *slog.Logger
	limits             limits // defaultLimits if zero
}

// Server serves a store to the container runtime and to whoever pulls and pushes images, if they know the password.
type Server struct {
	http     *http.Server
	registry *registry
	address  string
	cancel   context.CancelFunc
	done     chan struct{}
}

// Serve begins to serve a store.
func Serve(o ServeOptions) (*Server, error) {
	if o.TLS == nil || o.Username == "" || o.Password == "" || len(o.Hosts) == 0 {
		return nil, errors.New("a registry is served with a certificate, by known names, to those who know its password")
	}
	inner, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(inner.Addr().String())
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	config := o.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	l := tls.NewListener(&limitedListener{Listener: inner}, config)
	ctx, cancel := context.WithCancel(context.Background())
	r := registryOf(o.Store, o.Log)
	handler := newGuard(r, o.Hosts, port, o.Username, o.Password)
	if o.limits != (limits{}) {
		handler.limits = o.limits
	}
	v := &Server{
		http: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
			ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // a client that does not trust the certificate is no news
		},
		registry: r, address: inner.Addr().String(), cancel: cancel, done: make(chan struct{}, 2),
	}
	go func() {
		if err := v.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("failed to serve the image registry", "address", inner.Addr().String(), "error", err)
		}
		v.done <- struct{}{}
	}()
	go func() {
		v.collect(ctx)
		v.done <- struct{}{}
	}()
	return v, nil
}

// Address is where it listens.
func (v *Server) Address() string { return v.address }

// Close ends the server; requests that are under way may finish until the context ends.
func (v *Server) Close(ctx context.Context) error {
	v.cancel()
	err := v.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, v.http.Close())
	}
	for range cap(v.done) {
		<-v.done
	}
	v.registry.uploads.close()
	return err
}

func (v *Server) collect(ctx context.Context) {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if _, err := v.registry.store.Collect(ctx, now); err != nil && ctx.Err() == nil {
				v.registry.log.Warn("image registry: content that no image uses could not be removed", "error", err)
			}
		}
	}
}

// limitedListener closes connections beyond maxConnections: the process has other uses for its file descriptors.
type limitedListener struct {
	net.Listener
	open atomic.Int64
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= maxConnections {
			return &limitedConn{Conn: conn, open: &l.open}, nil
		}
		l.open.Add(-1)
		_ = conn.Close() // nothing was said on it
	}
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *limitedConn) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}
