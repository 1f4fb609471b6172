// Package timerslack starts programs with a given timer slack: how late the kernel may be with their timers.
//
// Go's scheduler has a monitor that sleeps for 20 microseconds at a time while a program writes to disk or to sockets. With the kernel's usual slack of 50 that is five
// thousand switches and interrupts a second under load, on a machine that has better things to do; nothing else in skiff counts time in less than milliseconds.
// So skiff's servers are started with more slack (docs/decisions/0016). A process inherits it from its parent, so programs that are not skiff's are started with the
// usual slack again.
//
// It must not import anything else of skiff.
package timerslack

import "time"

const (
	// Ample is the slack of skiff's servers.
	Ample = 500 * time.Microsecond
	// Usual is Linux's default slack.
	Usual = 50 * time.Microsecond
)
