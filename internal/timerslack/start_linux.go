package timerslack

import (
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts a command whose timers may be so late. That they cannot be is no reason not to.
func Start(cmd *exec.Cmd, slack time.Duration) error {
	runtime.LockOSThread() // a new process has its slack from the thread that made it
	defer runtime.UnlockOSThread()
	if before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) == nil {
		defer unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
	}
	return cmd.Start()
}
