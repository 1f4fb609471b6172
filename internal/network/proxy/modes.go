package proxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skiff/internal/network/proxy/model"
	"skiff/internal/network/proxy/nft"
)

// way is a mode as its package has it.
type way struct {
	open  func(model.Config) (model.Mode, error)
	clean func() error
}

// ways are the modes that there are.
var ways = map[string]way{
	"nftables": {func(c model.Config) (model.Mode, error) { return nft.New(c) }, nft.Clean},
}

func known(mode string) error {
	if _, ok := ways[mode]; !ok {
		return fmt.Errorf("service proxy mode %q is none of %s", mode, strings.Join(slices.Sorted(maps.Keys(ways)), ", "))
	}
	return nil
}

func newMode(mode string, c model.Config) (model.Mode, error) { return ways[mode].open(c) }

// Clean removes every trace of the service proxy from this network namespace, in whatever mode it ran.
func Clean() error { return cleanOthers("") }

// cleanOthers removes what other modes than this one left behind.
func cleanOthers(mode string) error {
	var failed error
	for name, w := range ways {
		if name == mode {
			continue
		}
		if err := w.clean(); err != nil {
			failed = errors.Join(failed, fmt.Errorf("service proxy mode %s: %w", name, err))
		}
	}
	return failed
}
