package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skiff/internal/timerslack"
)

// process is a process that need not be a child of this one. Its pidfd stays with it, also if its pid is used again.
type process struct {
	pid  int
	file *os.File // the pidfd
}

func openProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &process{pid, os.NewFile(uintptr(fd), "pidfd")}, nil
}

func (p *process) close() { p.file.Close() }

// wait returns when the process or ctx has ended.
func (p *process) wait(ctx context.Context) {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { p.file.SetReadDeadline(time.Now()) })
	defer func() {
		if !stop() {
			p.file.SetReadDeadline(time.Time{})
		}
	}()
	conn.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

func (p *process) signal(s syscall.Signal) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = unix.PidfdSendSignal(int(fd), s, nil, 0) })
	if errors.Is(failed, unix.ESRCH) {
		failed = nil
	}
	return errors.Join(err, failed)
}

// endTime is how long a process may take to end after a signal, before the next one is sent.
const endTime = 10 * time.Second

// politely are the signals that end a process which may clean up.
var politely = []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}

// end sends one signal after the other until the process has ended.
func (p *process) end(ctx context.Context, signals ...syscall.Signal) error {
	defer p.close()
	for _, s := range signals {
		if err := p.signal(s); err != nil {
			return fmt.Errorf("failed to signal process %d: %w", p.pid, err)
		}
		limited, cancel := context.WithTimeout(ctx, endTime)
		p.wait(limited)
		ended := limited.Err() == nil
		cancel()
		if ended {
			return nil
		}
	}
	return fmt.Errorf("process %d has not ended after SIGKILL", p.pid)
}

// runs reports whether the process runs a program file with a configuration file.
func (p *process) runs(file, config string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	return err == nil && bytes.Equal(data, []byte(file+"\x00--config\x00"+config+"\x00"))
}

// launch starts containerd in a session and a cgroup of its own.
func (r *Runtime) launch() (*process, error) {
	r.endHelpers()
	log, err := os.OpenFile(r.paths.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(r.binary("containerd"), "--config", r.config)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.Env = environment(filepath.Join(r.paths.Bundle, "bin"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := timerslack.Start(cmd, timerslack.Usual); err != nil { // containers inherit the timer slack
		return nil, err
	}
	go cmd.Wait() // reaps it, should it end before this process does
	if err := enterCgroup(r.paths.Cgroup, cmd.Process.Pid); err != nil {
		r.o.Log.Warn("failed to move containerd to a cgroup of its own: killing skiff's cgroup kills containers too", "error", err)
	}
	p, err := openProcess(cmd.Process.Pid)
	if err != nil {
		return nil, fmt.Errorf("containerd ended at once: %s; see %s", lastLine(r.paths.Log), r.paths.Log)
	}
	return p, nil
}

// environment returns this process's environment, without the variables by which containerd would notify the service manager that started skiff.
func environment(bin string) []string {
	path := bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	env := []string{"PATH=" + path}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "PATH", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID", "INVOCATION_ID", "JOURNAL_STREAM":
		default:
			env = append(env, e)
		}
	}
	return env
}

// containerds returns the containerds that run from bundles of a data directory: one, unless something went wrong.
func containerds(dataDir string) ([]*process, error) {
	var out []*process
	err := eachProgram(bundles(dataDir), func(pid int, file string) {
		if filepath.Base(file) != "containerd" {
			return
		}
		if p, err := openProcess(pid); err == nil {
			if programOf(pid) == file { // the pid is still that of the same process
				out = append(out, p)
			} else {
				p.close()
			}
		}
	})
	return out, err
}

// eachProgram calls f for every process whose program is under a directory.
func eachProgram(dir string, f func(pid int, file string)) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if file := programOf(pid); strings.HasPrefix(file, dir+"/") {
			f(pid, file)
		}
	}
	return nil
}

// programOf returns the file that a process runs, even if it was removed since.
func programOf(pid int) string {
	file, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(file, " (deleted)")
}

// sweep removes bundles that nothing runs from.
func sweep(dir, current string, log *slog.Logger) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		log.Warn("failed to list old bundles", "error", err)
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if path == current || !e.IsDir() {
			continue
		}
		used := false
		err := eachProgram(path, func(int, string) { used = true })
		if err == nil && !used {
			err = os.RemoveAll(path)
		}
		if err != nil {
			log.Warn("failed to remove an old bundle", "path", path, "error", err)
		}
	}
}

// tail returns the last bytes of a file.
func tail(path string, bytes int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > bytes {
		if _, err := f.Seek(-bytes, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, bytes))
}

func lastLine(path string) string {
	data, err := tail(path, 4<<10)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}
