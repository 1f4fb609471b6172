//go:build !linux

package conntrack

import "skiff/internal/network/proxy/model"

// DeleteStale does nothing: other systems have no conntrack.
func DeleteStale(*model.State, model.Changes) (int, error) { return 0, nil }
