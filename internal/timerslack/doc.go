// Package timerslack starts programs with a say in how late the kernel may be with their timers.
//
// Go's scheduler has a monitor that sleeps for 20 microseconds at a time while a program writes to disk or to sockets. With the kernel's usual slack of 50 that is five
// thousand switches and interrupts a second under load, on a machine that has better things to do; nothing else in skiff counts time in less than milliseconds.
// So skiff's servers are started with more slack (docs/decisions/0016). It is handed on from a process to what it starts, and so what is not skiff's is started with the
// usual one again.
package timerslack

import "time"

const (
	// Ample is for skiff.
	Ample = 500 * time.Microsecond
	// Usual is what a process has on Linux unless somebody said otherwise.
	Usual = 50 * time.Microsecond
)
