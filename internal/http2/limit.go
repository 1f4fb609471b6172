package http2

import (
	"log"
	"net"
	"net/netip"
	"sync"
	"time"
)

// connLimit bounds how many connections are open, in total and from one client address, so that a client that opens many leaves some for others.
type connLimit struct {
	max           int // in total; unlimited if zero
	maxPerAddress int // unlimited if zero
	log           *log.Logger

	mu        sync.Mutex
	open      int
	addresses map[netip.Addr]int
	refused   int // since the last log line about it
	loggedAt  time.Time
}

func newConnLimit(o Options, log *log.Logger) *connLimit {
	return &connLimit{max: o.MaxConnections, maxPerAddress: o.MaxConnectionsPerAddress, log: log, addresses: map[netip.Addr]int{}}
}

// acquire counts a connection until release is called. ok is false if there are too many.
func (l *connLimit) acquire(c net.Conn) (release func(), ok bool) {
	if l.max == 0 && l.maxPerAddress == 0 {
		return func() {}, true
	}
	address, local := clientAddress(c)
	limit := l.maxPerAddress
	if local && limit > 0 {
		limit = max(limit, l.max/2) // many clients share this machine's own addresses
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.max > 0 && l.open >= l.max || limit > 0 && l.addresses[address] >= limit {
		l.refuse(address)
		return nil, false
	}
	l.open++
	l.addresses[address]++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		if l.addresses[address]--; l.addresses[address] == 0 {
			delete(l.addresses, address)
		}
	}), true
}

// refusedLogEvery is how often refused connections are logged.
const refusedLogEvery = time.Minute

// refuse counts a refused connection, and logs it unless it has done so lately.
func (l *connLimit) refuse(address netip.Addr) {
	l.refused++
	if now := time.Now(); l.log != nil && now.Sub(l.loggedAt) >= refusedLogEvery {
		l.log.Printf("http2: too many connections: refused one from %v (%d refused since this was last logged, %d open, %d from that address)", address, l.refused, l.open, l.addresses[address])
		l.refused, l.loggedAt = 0, now
	}
}

// clientAddress returns the address that a connection is counted for, and whether it is one of this machine. All addresses of an IPv6 /64, which one site has,
// count as one.
func clientAddress(c net.Conn) (address netip.Addr, local bool) {
	remote, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, true
	}
	address = remote.AddrPort().Addr().Unmap().WithZone("")
	local = address.IsLoopback()
	if own, ok := c.LocalAddr().(*net.TCPAddr); ok && own.AddrPort().Addr().Unmap().WithZone("") == address {
		local = true
	}
	const site = 64
	if address.Is6() && !local {
		if network, err := address.Prefix(site); err == nil {
			address = network.Addr()
		}
	}
	return address, local
}
