package timerslack

import (
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts a command with a timer slack. It starts the command all the same if the slack cannot be set.
func Start(cmd *exec.Cmd, slack time.Duration) error {
	runtime.LockOSThread() // a new process inherits the slack of the thread that starts it
	defer runtime.UnlockOSThread()
	if before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) == nil {
		defer unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
	}
	return cmd.Start()
}
