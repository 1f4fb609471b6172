package apitest

import (
	"context"
	"log/slog"

	"skiff/internal/apiserver"
	"skiff/internal/client"
	"skiff/internal/store"
)

// Option changes how a server is started.
type Option func(*options)

type options struct {
	store     store.Store
	unguarded bool
	log       *slog.Logger
	change    []func(*apiserver.Options)

	components []func(Place) (Component, error)
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

// ServiceAccounts is the admission plugin that is off unless somebody makes the accounts that pods need.
const ServiceAccounts = "ServiceAccount"

// Place is where a component runs.
type Place struct {
	API client.Source
	CA  []byte // the authority of the server's certificate
	Log *slog.Logger
}

// Component is something that runs beside a server in its process.
type Component struct {
	Name  string
	Run   func(context.Context) error // until the context ends and all its work has
	Ready func(context.Context) error // returns when it does what it is there for
	// Settled, if not nil, returns when what it does has come to rest that the readiness of all components brought about.
	Settled func(context.Context) error
	// Seen, if not nil, returns when it knows how all have settled.
	Seen func(context.Context) error
}

// WithComponent has something run beside the server. It is made when the API is ready, ends with the server, and is made anew when the
// server is started again.
func WithComponent(prepare func(Place) (Component, error)) Option {
	return func(o *options) { o.components = append(o.components, prepare) }
}

// Together makes options one.
func Together(opts ...Option) Option {
	return func(o *options) {
		for _, opt := range opts {
			opt(o)
		}
	}
}
