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

// WithStore sets the store of the server, which is not closed when the server stops.
func WithStore(s store.Store) Option { return func(o *options) { o.store = s } }

// WithoutGuard turns off the detection of changed shared objects, for benchmarks: it costs a checksum per object.
func WithoutGuard() Option { return func(o *options) { o.unguarded = true } }

// WithLog sets the logger of the server, which is silent otherwise.
func WithLog(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithServer changes the options of the API server.
func WithServer(change func(*apiserver.Options)) Option {
	return func(o *options) { o.change = append(o.change, change) }
}

// ServiceAccounts is the name of the admission plugin that is disabled unless a controller creates the service accounts that pods need.
const ServiceAccounts = "ServiceAccount"

// Place is what a component gets of the server it runs with.
type Place struct {
	API client.Source
	CA  []byte // the CA of the server's certificate
	Log *slog.Logger
}

// Component is a component that runs with a server, in its process.
type Component struct {
	Name  string
	Run   func(context.Context) error // returns when the context has ended and all its goroutines have
	Ready func(context.Context) error // returns when the component works
	// Settled, if not nil, returns when the component has finished what it does once all components are ready.
	Settled func(context.Context) error
	// Seen, if not nil, returns when the component has observed the result of all components' settling.
	Seen func(context.Context) error
}

// WithComponent runs a component with the server. prepare is called when the API is ready, and again when the server is restarted; the
// component is stopped with the server.
func WithComponent(prepare func(Place) (Component, error)) Option {
	return func(o *options) { o.components = append(o.components, prepare) }
}

// Together combines options into one.
func Together(opts ...Option) Option {
	return func(o *options) {
		for _, opt := range opts {
			opt(o)
		}
	}
}
