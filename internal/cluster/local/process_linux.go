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

// statusField are the words of a line of /proc/PID/status.
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

// process is a process that may be nobody's child here. The descriptor stands for this one, whoever gets its number later.
type process struct{ pid, fd int }

func openProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	return &process{pid, fd}, nil
}

func (p *process) close() { unix.Close(p.fd) }

func (p *process) signal(s unix.Signal) error {
	if err := unix.PidfdSendSignal(p.fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signalling process %d: %w", p.pid, err)
	}
	return nil
}

// wait waits until the process has ended, and reports whether it has.
func (p *process) wait(ctx context.Context) bool {
	const look = 100 // milliseconds, after which the context is looked at
	for {
		poll := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, look); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

// endTime is how long a process may take to end.
const endTime = 30 * time.Second

// end ends a process with a signal, and with SIGKILL if that is not enough.
func (p *process) end(ctx context.Context, s unix.Signal) error {
	for _, signal := range []unix.Signal{s, unix.SIGKILL} {
		if err := p.signal(signal); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, endTime)
		ended := p.wait(limited)
		cancel()
		if ended {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end", p.pid)
}
