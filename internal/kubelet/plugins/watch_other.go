//go:build !linux

package plugins

import "errors"

// watch is for Linux only, as nodes are.
type watch struct{}

var errLinux = errors.New("plugins are found only on Linux")

func newWatch() (*watch, error)         { return nil, errLinux }
func (*watch) add(string) (bool, error) { return false, errLinux }
func (*watch) wait() error              { return errLinux }
func (*watch) close()                   {}
func identify(string) (identity, bool)  { return identity{}, false }
