//go:build !linux

package check

import "runtime"

// Machine returns one problem: nodes run on Linux only.
func Machine(Options) []Finding {
	return []Finding{problem("system", "use --no-node for a control plane alone", "%s cannot run a node", runtime.GOOS)}
}
