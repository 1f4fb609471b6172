package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// statusField returns the words of a line of /proc/PID/status.
func statusField(pid int, name string) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

// pidfd refers to a process that need not be a child of this one. It stays with that process, also if its pid is used again.
type pidfd struct{ pid, fd int }

func openPIDFD(pid int) (*pidfd, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	return &pidfd{pid, fd}, nil
}

func (p *pidfd) close() { unix.Close(p.fd) }

func (p *pidfd) signal(s unix.Signal) error {
	if err := unix.PidfdSendSignal(p.fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("failed to signal process %d: %w", p.pid, err)
	}
	return nil
}

// wait waits until the process has ended or ctx ends, and reports whether the process has ended.
func (p *pidfd) wait(ctx context.Context) bool {
	const pollMillis = 100 // how often ctx is checked
	for {
		poll := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, pollMillis); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

// endTimeout is how long a process may take to end after a signal.
const endTimeout = 30 * time.Second

// end ends a process with a signal, and with SIGKILL if that is not enough.
func (p *pidfd) end(ctx context.Context, s unix.Signal) error {
	for _, signal := range []unix.Signal{s, unix.SIGKILL} {
		if err := p.signal(signal); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, endTimeout)
		ended := p.wait(limited)
		cancel()
		if ended {
			return nil
		}
	}
	return fmt.Errorf("process %d has not ended after SIGKILL", p.pid)
}
