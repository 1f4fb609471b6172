package podnet

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Sweep releases addresses of sandboxes that are not in sandboxes and were allocated before a time, and removes CNI's cached results of such
// sandboxes if their network namespaces were below the directory namespaces. A runtime that was killed while it created a sandbox leaves these
// behind.
func (c Config) Sweep(sandboxes map[string]bool, before time.Time, namespaces string) error {
	return errors.Join(c.sweepAddresses(sandboxes, before), sweepResults(filepath.Join(cniState, "results"), sandboxes, before, namespaces))
}

// sweepAddresses removes the files of addresses, which the type addresses or host-local wrote: one for each address, with the sandbox's id in it.
func (c Config) sweepAddresses(sandboxes map[string]bool, before time.Time) (failed error) {
	files, err := filepath.Glob(filepath.Join(c.State, NetworkName, "*"))
	for _, path := range files {
		if _, err := netip.ParseAddr(filepath.Base(path)); err != nil || !isOld(path, before) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			failed = errors.Join(failed, ignoreMissing(err))
			continue
		}
		id, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
		if !sandboxes[strings.TrimSpace(id)] {
			failed = errors.Join(failed, ignoreMissing(os.Remove(path)))
		}
	}
	return errors.Join(err, failed)
}

// sweepResults removes the results that the CNI library cached for each network of each sandbox, skiff's network and others.
func sweepResults(dir string, sandboxes map[string]bool, before time.Time, namespaces string) (failed error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, path := range files {
		if !isOld(path, before) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			failed = errors.Join(failed, ignoreMissing(err))
			continue
		}
		var made struct {
			ContainerID string `json:"containerId"`
			NetNS       string `json:"netns"`
		}
		if json.Unmarshal(data, &made) == nil && strings.HasPrefix(made.NetNS, namespaces+"/") && !sandboxes[made.ContainerID] {
			failed = errors.Join(failed, ignoreMissing(os.Remove(path)))
		}
	}
	return errors.Join(err, failed)
}

func isOld(path string, before time.Time) bool {
	info, err := os.Stat(path)
	return err == nil && info.ModTime().Before(before)
}
