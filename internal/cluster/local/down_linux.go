package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// Stop stops skiff in all nodes of a cluster. Nodes and pods keep running.
func Stop(ctx context.Context, dataDir string) (stopped bool, err error) {
	l, done, err := open(ctx, dataDir)
	if err != nil {
		return false, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	var any atomic.Bool
	var stops []func() error
	for _, n := range l.Nodes {
		stops = append(stops, func() error {
			m, _, err := l.find(n)
			if err != nil || m == nil {
				return err
			}
			did, err := m.stopSkiff(ctx)
			if did {
				any.Store(true)
			}
			return err
		})
	}
	err = each(stops...)
	return any.Load(), err
}

// open reads a layout and locks its nodes until done is called.
func open(ctx context.Context, dataDir string) (l *Layout, done func(), err error) {
	if l, err = Load(dataDir); err != nil {
		return nil, nil, err
	}
	if done, err = lockNodes(ctx, l.dataDir); err != nil {
		return nil, nil, err
	}
	if l, err = Load(dataDir); err != nil { // again: another command may have changed it before the lock
		done()
	}
	return l, done, err
}

// openNode is open for one node.
func openNode(ctx context.Context, dataDir, name string) (l *Layout, n Node, done func(), err error) {
	if l, done, err = open(ctx, dataDir); err != nil {
		return nil, Node{}, nil, err
	}
	if n, err = l.Find(name); err != nil {
		done()
	}
	return l, n, done, err
}

// Down kills all nodes and removes everything of them but their disks. It works whatever runs, and in whatever state it is.
func Down(ctx context.Context, dataDir string) error {
	l, done, err := open(ctx, dataDir)
	if err != nil {
		return err
	}
	defer done()
	if m, _, err := l.find(l.Nodes[0]); err == nil && m != nil { // so that the store is closed, if possible
		if _, err := m.stopSkiff(ctx); err != nil {
			return err
		}
	}
	var ends []func() error
	for _, n := range l.Nodes {
		ends = append(ends, func() error { _, err := l.end(ctx, n); return err })
	}
	failed := each(ends...)
	g, err := findGroups(l.clusterGroup())
	if err != nil {
		return errors.Join(failed, err)
	}
	failed = errors.Join(failed, g.remove(ctx), l.removeUnderlay())
	g.removeAbove()
	return failed
}

// State is the state of a node.
type State struct {
	Node
	Running     bool // the node is on
	Partitioned bool
	PID         int // pid of skiff in the node, 0 if it does not run
	InitPID     int
	Log         string
}

// Inspect returns the states of all nodes.
func Inspect(dataDir string) ([]State, error) {
	l, err := Load(dataDir)
	if err != nil {
		return nil, err
	}
	var cut []string
	if isNamespace(l.underlay()) {
		if err := inNetwork(l.underlay(), func() (err error) { cut, err = cutPorts(); return err }); err != nil {
			return nil, fmt.Errorf("failed to read the rules of the nodes' network: %w", err)
		}
	}
	var out []State
	for _, n := range l.Nodes {
		s := State{Node: n, Partitioned: slices.Contains(cut, n.port()), Log: l.log(n)}
		m, made, err := l.find(n)
		if err != nil {
			return nil, err
		}
		if made {
			s.Running, s.InitPID = true, m.pid
			if pids := m.skiffs(); len(pids) > 0 {
				s.PID = pids[0]
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// StopNode kills a node, as a power failure does.
func StopNode(ctx context.Context, dataDir, name string) (ran bool, err error) {
	l, n, done, err := openNode(ctx, dataDir, name)
	if err != nil {
		return false, err
	}
	defer done()
	return l.end(ctx, n)
}

// Partition cuts a node off from all others, or connects it with them again. This machine can reach it all the time.
func Partition(ctx context.Context, dataDir, name string, cut bool) (changed bool, err error) {
	l, n, done, err := openNode(ctx, dataDir, name)
	if err != nil {
		return false, err
	}
	defer done()
	if !isNamespace(l.underlay()) {
		return false, fmt.Errorf("cluster %s is down: its nodes are not connected", l.Name)
	}
	err = inNetwork(l.underlay(), func() (err error) { changed, err = setCut(n.port(), cut); return err })
	return changed, err
}
