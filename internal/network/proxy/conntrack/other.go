//go:build !linux

package conntrack

import "skiff/internal/network/proxy/model"

// Forget has nothing to do where no packets are redirected.
func Forget(*model.State, model.Changes) (int, error) { return 0, nil }
