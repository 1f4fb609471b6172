package cluster

import "syscall"

const (
	// maxConnections bounds the API's open connections by default: enough for 5,000 nodes with a few each. An idle one takes about 50 kB.
	maxConnections = 32 << 10
	// addressFraction is the fraction of all connections that one client address may have open: a sixty-fourth. Addresses of this machine, which many clients share,
	// may have half of them.
	addressFraction = 64
	// minPerAddress is how many connections an address may have open however few files the process may open.
	minPerAddress = 256
)

// connectionLimits returns how many connections the API may have open, in total and from one client address. Half of the files that the process may open
// (RLIMIT_NOFILE) are left for everything else.
func (c *ServingConfig) connectionLimits() (total, perAddress int) {
	if total = c.MaxConnections; total == 0 {
		total = maxConnections
		var files syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
			total = int(min(files.Cur/2, maxConnections))
		}
	}
	if perAddress = c.MaxConnectionsPerAddress; perAddress == 0 {
		perAddress = max(total/addressFraction, minPerAddress)
	}
	return total, perAddress
}
