package skifftest

import (
	"log/slog"
	"testing"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/store"
)

// Server is an API server that runs as long as a test, with the components that run beside it.
//
// Client returns the administrator's client, Config and Kubeconfig are for other clients, ConfigFor returns the configuration of another
// user. InProcess and Remote return clients as components have them. Kill stops the server abruptly, Restart starts it again.
type Server = apitest.Server

// Option changes how a server is started.
type Option = apitest.Option

// Start starts a server with its components, waits until all are ready, and stops them when the test ends. The test fails if
// somebody changed an object that informers share.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return apitest.Start(t, opts...)
}

// WithStore makes the server use the test's store, which is left open when the server stops.
func WithStore(s store.Store) Option { return apitest.WithStore(s) }

// WithoutGuard disables the detection of changes to shared objects, for benchmarks: it costs a checksum per object.
func WithoutGuard() Option { return apitest.WithoutGuard() }

// WithLog sets the server's logger. Without it nothing is logged.
func WithLog(l *slog.Logger) Option { return apitest.WithLog(l) }

// WithServer changes the API server's options.
func WithServer(change func(*apiserver.Options)) Option { return apitest.WithServer(change) }
