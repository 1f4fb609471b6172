//go:build !linux

package bundle

import (
	"context"
	"errors"
)

// errLinux is why there are no nodes here.
var errLinux = errors.New("containers run on Linux only: use --no-node here")

// Runtime is a container runtime that is kept running; there is none on this system.
type Runtime struct{}

// Start says that containers run on Linux only.
func Start(context.Context, Options) (*Runtime, error) { return nil, errLinux }

// Endpoint is where CRI would be served.
func (r *Runtime) Endpoint() string { return "" }

// Paths are where things would be.
func (r *Runtime) Paths() Paths { return Paths{} }

// Detach has nothing to leave.
func (r *Runtime) Detach() {}

// Stop has nothing to stop.
func (r *Runtime) Stop(context.Context) error { return nil }

// Clean has nothing to remove.
func Clean(context.Context, string) error { return nil }
