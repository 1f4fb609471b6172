package userspace

import (
	"time"

	"golang.org/x/sys/unix"
)

// Limits are the bounds of what goes on at once and of how long it goes on.
type Limits struct {
	Connections int // of TCP; more are reset
	Senders     int // of UDP, by address and port; packets of more are dropped
	Clients     int // remembered for session affinity; more are balanced anew every time

	Idle       time.Duration // how long nothing may be said on a connection
	HalfClosed time.Duration // and when one side has said that it is done
	SenderIdle time.Duration // how long a sender of UDP and its answers may pause

	Dial     []time.Duration // patience with endpoints, one after the other; the last one is for all that follow
	DialAll  time.Duration   // and with all of them together
	Attempts int             // endpoints to try for one connection
}

// DefaultLimits are like what connection tracking does in other modes, within what this process may have open.
func DefaultLimits() Limits {
	l := Limits{
		Connections: 16 << 10, Senders: 16 << 10, Clients: 1 << 18,
		Idle: 24 * time.Hour, HalfClosed: time.Hour, SenderIdle: time.Minute,
		Dial: []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}, DialAll: 5 * time.Second, Attempts: 16,
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		// A connection has two sockets, and two pipes while something is said in both directions. Half of all files is for others in this process.
		if most := int(min(files.Cur, 1<<30)) / 2; most/2/6 < l.Connections || most/2 < l.Senders {
			l.Connections, l.Senders = max(1, min(l.Connections, most/2/6)), max(1, min(l.Senders, most/2))
		}
	}
	return l
}

// slots are what is limited in number.
type slots chan struct{}

func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) give() { <-s }
