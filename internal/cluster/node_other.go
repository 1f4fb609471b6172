//go:build !linux

package cluster

import (
	"context"
	"errors"
)

// node is empty: nodes run on Linux only.
type node struct{}

var errLinux = errors.New("nodes run on Linux: use --no-node for a control plane alone")

func startRuntime(context.Context, nodeOptions) (*node, error) { return nil, errLinux }

func (n *node) start(context.Context, nodeAccess) error { return errLinux }

func (n *node) stop() {}

// CleanNode does nothing: nodes run on Linux only.
func CleanNode(context.Context, string) error { return nil }
