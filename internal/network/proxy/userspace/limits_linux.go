package userspace

import (
	"time"

	"golang.org/x/sys/unix"
)

// Limits bounds the resources of the mode.
type Limits struct {
	Connections int // open TCP connections; further ones are reset
	Senders     int // UDP senders, by address and port; packets of further ones are dropped
	Clients     int // clients recorded for session affinity; further ones are balanced every time

	Idle       time.Duration // the idle timeout of a connection
	HalfClosed time.Duration // the idle timeout of a half-closed connection
	SenderIdle time.Duration // the idle timeout of a UDP sender

	Dial     []time.Duration // the timeouts of successive attempts to connect; the last one is for all further attempts
	DialAll  time.Duration   // the timeout of all attempts for one connection
	Attempts int             // the most attempts for one connection
}

// DefaultLimits returns limits like those of conntrack in other modes, as far as the process's limit of open files allows.
func DefaultLimits() Limits {
	l := Limits{
		Connections: 16 << 10, Senders: 16 << 10, Clients: 1 << 18,
		Idle: 24 * time.Hour, HalfClosed: time.Hour, SenderIdle: time.Minute,
		Dial: []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}, DialAll: 5 * time.Second, Attempts: 16,
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		// A connection has two sockets, and two pipes while data is copied in both directions. Half of all files is left to the rest of the process.
		if most := int(min(files.Cur, 1<<30)) / 2; most/2/6 < l.Connections || most/2 < l.Senders {
			l.Connections, l.Senders = max(1, min(l.Connections, most/2/6)), max(1, min(l.Senders, most/2))
		}
	}
	return l
}

// slots is a counting semaphore.
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
