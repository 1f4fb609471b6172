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
	// collectEvery is the period of garbage collection.
	collectEvery = time.Hour
	// maxConnections bounds open connections; a further one is closed at once.
	maxConnections = 512
)

// Access is the address and the credentials of a registry.
type Access struct {
	Address            string // host and port
	CAFile             string // authority of the registry's certificate
	Username, Password string
}

// ServeOptions configure a Server. All but Log are required.
type ServeOptions struct {
	Address            string // host and port to listen on; port 0 is any that is free
	Store              *Store
	TLS                *tls.Config
	Hosts              []string // names and addresses of the registry
	Username, Password string   // credentials that clients must send
	Log                *slog.Logger
	limits             limits // defaultLimits if zero
}

// Server serves a store to clients that know the password: the container runtime, and those that pull and push images.
type Server struct {
	http     *http.Server
	registry *registry
	address  string
	cancel   context.CancelFunc
	done     chan struct{}
}

// Serve starts a server.
func Serve(o ServeOptions) (*Server, error) {
	if o.TLS == nil || o.Username == "" || o.Password == "" || len(o.Hosts) == 0 {
		return nil, errors.New("failed to serve the image registry: it needs a certificate, host names and a password")
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
	r := newRegistry(o.Store, o.Log)
	handler := newGuard(r, o.Hosts, port, o.Username, o.Password)
	if o.limits != (limits{}) {
		handler.limits = o.limits
	}
	v := &Server{
		http: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
			ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // clients that do not trust the certificate are not worth a line
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

// Address returns the address that the server listens on.
func (v *Server) Address() string { return v.address }

// Close stops the server; requests in flight may finish until ctx ends.
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
				v.registry.log.Warn("failed to remove unused blobs of the image registry", "error", err)
			}
		}
	}
}

// limitedListener closes connections beyond maxConnections: the process needs file descriptors for other things.
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
		_ = conn.Close() // nothing was sent on it
	}
}

// limitedConn is a connection that is counted until it is closed.
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
