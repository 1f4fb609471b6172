package timerslack

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A command has the slack it was started with, and who starts it keeps their own.
func TestStart(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, slack := range []time.Duration{Ample, Usual, time.Millisecond} {
		cmd := exec.Command("cat", "/proc/self/timerslack_ns")
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := Start(cmd, slack); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(out.String()); got != strconv.Itoa(int(slack)) {
			t.Errorf("started with %v it has %s ns", slack, got)
		}
		if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || now != mine {
			t.Errorf("who started it had %d ns and has %d, %v", mine, now, err)
		}
	}
}
