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

// modePackage holds the functions of a mode's package.
type modePackage struct {
	open  func(model.Config) (model.Mode, error)
	clean func() error
	// anonymous says that the mode's rules cannot be told from those of a kube-proxy, so that a mark in nftables must say that they are skiff's.
	anonymous bool
}

// modes lists the modes by name.
var modes = map[string]modePackage{
	"nftables":  {func(c model.Config) (model.Mode, error) { return nft.New(c) }, nft.Clean, false},
	"iptables":  {func(c model.Config) (model.Mode, error) { return iptables.New(c) }, iptables.Clean, true},
	"userspace": {func(c model.Config) (model.Mode, error) { return userspace.New(c) }, userspace.Clean, false},
}

func checkMode(mode string) error {
	if _, ok := modes[mode]; !ok {
		return fmt.Errorf("service proxy mode %q is none of %s", mode, strings.Join(slices.Sorted(maps.Keys(modes)), ", "))
	}
	return nil
}

// newMode opens a mode, and marks that its rules are skiff's if the rules themselves do not show it.
func newMode(mode string, c model.Config) (model.Mode, error) {
	m, err := modes[mode].open(c)
	if err != nil {
		return nil, err
	}
	if modes[mode].anonymous {
		err = nft.MarkMode(mode)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Clean removes the rules of the service proxy from this network namespace, in whatever mode it ran. Rules of a kube-proxy stay.
func Clean() error { return cleanOthers("") }

// cleanOthers removes the rules of all modes but one.
func cleanOthers(mode string) error {
	var failed error
	for name, m := range modes {
		if name == mode {
			continue
		}
		if err := m.remove(name); err != nil {
			failed = errors.Join(failed, fmt.Errorf("service proxy mode %s: %w", name, err))
		}
	}
	return failed
}

func (m modePackage) remove(mode string) error {
	if !m.anonymous {
		return m.clean()
	}
	if ours, err := nft.ModeMarked(mode); err != nil || !ours {
		return err
	}
	if err := m.clean(); err != nil {
		return err
	}
	return nft.UnmarkMode(mode)
}
