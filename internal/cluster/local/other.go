//go:build !linux

package local

import (
	"context"
	"errors"
	"net"
)

// InitCommand is skiff's command that makes the machine of a node around itself.
const InitCommand = "node-init"

var errLinux = errors.New("nodes of namespaces run on Linux only")

// Options configure a cluster of local nodes.
type Options struct {
	DataDir, Name string
	Nodes, Port   int
	Memory        int64
	Server, Agent []string
}

// State is the state of a node.
type State struct {
	Node
	Running, Partitioned bool
	PID, InitPID         int
	Log                  string
}

func Up(context.Context, Options) (*Layout, bool, error)            { return nil, false, errLinux }
func Stop(context.Context, string) (bool, error)                    { return false, errLinux }
func Down(context.Context, string) error                            { return errLinux }
func Inspect(string) ([]State, error)                               { return nil, errLinux }
func StartNode(context.Context, string, string) (bool, error)       { return false, errLinux }
func StopNode(context.Context, string, string) (bool, error)        { return false, errLinux }
func Partition(context.Context, string, string, bool) (bool, error) { return false, errLinux }
func Init() error                                                   { return errLinux }

// Dial connects to an address from a node's network.
func Dial(context.Context, string, string, string, string) (net.Conn, error) { return nil, errLinux }
