package proxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skiff/internal/network/proxy/iptables"
	"skiff/internal/network/proxy/model"
	"skiff/internal/network/proxy/nft"
	"skiff/internal/network/proxy/userspace"
)

// way is a mode as its package has it.
type way struct {
	open  func(model.Config) (model.Mode, error)
	clean func() error
	// anonymous says that what it leaves behind looks like somebody else's.
	anonymous bool
}

// ways are the modes that there are.
var ways = map[string]way{
	"nftables":  {func(c model.Config) (model.Mode, error) { return nft.New(c) }, nft.Clean, false},
	"iptables":  {func(c model.Config) (model.Mode, error) { return iptables.New(c) }, iptables.Clean, true},
	"userspace": {func(c model.Config) (model.Mode, error) { return userspace.New(c) }, userspace.Clean, false},
}

func known(mode string) error {
	if _, ok := ways[mode]; !ok {
		return fmt.Errorf("service proxy mode %q is none of %s", mode, strings.Join(slices.Sorted(maps.Keys(ways)), ", "))
	}
	return nil
}

// newMode makes a mode, and leaves a trace of it where its rules do not show whose they are.
func newMode(mode string, c model.Config) (model.Mode, error) {
	m, err := ways[mode].open(c)
	if err != nil {
		return nil, err
	}
	if ways[mode].anonymous {
		err = nft.Trace(mode)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Clean removes every trace of the service proxy from this network namespace, in whatever mode it ran. Rules of a kube-proxy stay.
func Clean() error { return cleanOthers("") }

// cleanOthers removes what other modes than this one left behind.
func cleanOthers(mode string) error {
	var failed error
	for name, w := range ways {
		if name == mode {
			continue
		}
		if err := w.remove(name); err != nil {
			failed = errors.Join(failed, fmt.Errorf("service proxy mode %s: %w", name, err))
		}
	}
	return failed
}

func (w way) remove(mode string) error {
	if !w.anonymous {
		return w.clean()
	}
	if ours, err := nft.Traced(mode); err != nil || !ours {
		return err
	}
	if err := w.clean(); err != nil {
		return err
	}
	return nft.Untrace(mode)
}
