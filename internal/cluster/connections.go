package cluster

import "syscall"

const (
	// mostConnections is how many connections the API has open at most unless it is told otherwise: enough for 5,000 nodes with a few each. An idle one takes about 50 kB.
	mostConnections = 32 << 10
	// addressShare is the part of all connections that one client address may have open. Addresses of this machine, which many clients share, may have half of them.
	addressShare = 64
	// leastPerAddress is the least that an address may have open, however few files the process may open.
	leastPerAddress = 256
)

// connectionLimits are how many connections the API may have open, in total and from one client address. Half of the files that the process may open are left for everything
// else it does.
func (c *ServingConfig) connectionLimits() (total, perAddress int) {
	if total = c.MaxConnections; total == 0 {
		total = mostConnections
		var files syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
			total = int(min(files.Cur/2, mostConnections))
		}
	}
	if perAddress = c.MaxConnectionsPerAddress; perAddress == 0 {
		perAddress = max(total/addressShare, leastPerAddress)
	}
	return total, perAddress
}
