package images

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// DefaultAddress is where the registry listens unless it is told otherwise.
const DefaultAddress = "127.0.0.1:6500"

// collectEvery is how often content that no image uses is looked for.
const collectEvery = time.Hour

// Server serves a store to the container runtime and to whoever pulls and pushes images.
type Server struct {
	http     *http.Server
	registry *registry
	address  string
	cancel   context.CancelFunc
	done     chan struct{}
}

// Serve begins to serve a store at an address; port 0 is any that is free.
func Serve(address string, s *Store, log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &registry{store: s, uploads: &uploads{byID: map[string]*upload{}}, log: log}
	v := &Server{
		http:     &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10},
		registry: r, address: l.Addr().String(), cancel: cancel, done: make(chan struct{}, 2),
	}
	go func() {
		if err := v.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the image registry has ended", "error", err)
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
