package skifftest

import (
	"log/slog"
	"testing"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/store"
)

// Server is an API server that lives as long as a test, with what runs beside it.
//
// Client is the administrator's client, Config and Kubeconfig are for those who make their own, ConfigFor is how somebody else reaches the
// server. InProcess and Remote return what a component has. Kill stops the server in the middle of what it is doing, Restart starts it again.
type Server = apitest.Server

// Option changes how a server is started.
type Option = apitest.Option

// Start starts a server, waits until it is ready, and with it all that runs beside it, and has it stopped when the test ends. The test fails if
// somebody changed an object that informers share.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return apitest.Start(t, opts...)
}

// WithStore has the server keep its objects in a store of the test's, which is left open when the server stops.
func WithStore(s store.Store) Option { return apitest.WithStore(s) }

// WithoutGuard lets changes to shared objects pass unnoticed, for benchmarks: noticing them costs a checksum per object.
func WithoutGuard() Option { return apitest.WithoutGuard() }

// WithLog has the server log. It is silent otherwise.
func WithLog(l *slog.Logger) Option { return apitest.WithLog(l) }

// WithServer changes the API server's own options.
func WithServer(change func(*apiserver.Options)) Option { return apitest.WithServer(change) }
