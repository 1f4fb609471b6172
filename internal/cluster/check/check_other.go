//go:build !linux

package check

import "runtime"

// Machine looks at this machine. Nodes need Linux.
func Machine(Options) []Finding {
	return []Finding{problem("system", "use --no-node for a control plane alone", "%s cannot run a node", runtime.GOOS)}
}
