package skifftest

import (
	"log/slog"

	"skiff/internal/apiserver"
	"skiff/internal/store"
)

// Option changes how a server is started.
type Option func(*options)

type options struct {
	store     store.Store
	unguarded bool
	log       *slog.Logger
	change    []func(*apiserver.Options)
}

// WithStore has the server keep its objects in a store of the test's, which is left open when the server stops.
func WithStore(s store.Store) Option { return func(o *options) { o.store = s } }

// WithoutGuard lets changes to shared objects pass unnoticed, for benchmarks: noticing them costs a checksum per object.
func WithoutGuard() Option { return func(o *options) { o.unguarded = true } }

// WithLog has the server log. It is silent otherwise.
func WithLog(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithServer changes the API server's own options.
func WithServer(change func(*apiserver.Options)) Option {
	return func(o *options) { o.change = append(o.change, change) }
}
