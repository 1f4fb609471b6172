//go:build !linux

package cluster

import (
	"context"
	"errors"
)

// node is what other systems do not have.
type node struct{}

var errLinux = errors.New("nodes run on Linux: use --no-node for a control plane alone")

func beginNode(context.Context, nodeOptions) (*node, error) { return nil, errLinux }

func (n *node) start(context.Context, nodeAccess) error { return errLinux }

func (n *node) end() {}

// CleanNode has nothing to remove where no node runs.
func CleanNode(context.Context, string) error { return nil }
