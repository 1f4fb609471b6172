package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skiff/internal/cluster/datadir"
	"skiff/internal/timerslack"
)

// LaunchOptions say which process Launch starts.
type LaunchOptions struct {
	DataDir string
	Args    []string // arguments of this program
	// ReadyFile is the file that the process writes once it is ready. Launch removes one that an earlier process left.
	ReadyFile string
	Version   string // noted in the log at each start
}

// Launch starts this program in the background, unless it runs in the data directory already, and waits until it is ready.
func Launch(ctx context.Context, o LaunchOptions) (started bool, err error) {
	if err := datadir.Prepare(o.DataDir); err != nil {
		return false, err
	}
	unlock, err := LockDirectory(ctx, o.DataDir, fmt.Errorf("somebody else is starting a cluster in %s", o.DataDir))
	if err != nil {
		return false, err
	}
	defer unlock()
	pid, err := PID(o.DataDir)
	if err != nil {
		return false, err
	}
	if pid != 0 {
		return false, o.awaitReady(ctx, func() error {
			if now, err := PID(o.DataDir); err != nil || now != pid {
				return errors.Join(err, fmt.Errorf("process %d ended before it was ready: %s", pid, LastLine(LogPath(o.DataDir))))
			}
			return nil
		})
	}
	if err := os.Remove(o.ReadyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	exited, err := o.start()
	if err != nil {
		return false, err
	}
	err = o.awaitReady(ctx, func() error {
		select {
		case err := <-exited:
			return fmt.Errorf("skiff ended before it was ready (%v): %s", err, LastLine(LogPath(o.DataDir)))
		default:
			return nil
		}
	})
	return err == nil, err
}

// start starts this program in a session of its own, with its output in the log. exited receives the result of its end, if it ends while this process runs.
func (o *LaunchOptions) start() (exited <-chan error, err error) {
	log, err := OpenLog(os.OpenFile, LogPath(o.DataDir), o.Version)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, o.Args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := timerslack.Start(cmd, timerslack.Ample); err != nil {
		return nil, err
	}
	result := make(chan error, 1)
	go func() { result <- cmd.Wait() }()
	return result, nil
}

// awaitReady waits for the ready file. checkRunning returns an error once the process cannot become ready any more.
func (o *LaunchOptions) awaitReady(ctx context.Context, checkRunning func() error) error {
	for {
		if _, err := os.Stat(o.ReadyFile); err == nil {
			return nil
		}
		if err := checkRunning(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("skiff was not ready in time; see %s", LogPath(o.DataDir))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// terminateTimeout bounds how long a process may take to end after SIGTERM.
const terminateTimeout = 30 * time.Second

// Terminate sends SIGTERM to the process of a data directory and waits until it has ended. terminated is false if none ran.
func Terminate(ctx context.Context, dataDir string) (terminated bool, err error) {
	pid, err := PID(dataDir)
	if err != nil || pid == 0 {
		return false, err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("failed to stop process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, terminateTimeout)
	defer cancel()
	for {
		if now, err := PID(dataDir); err != nil || now != pid {
			return true, err
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("process %d has not ended %v after SIGTERM; see %s", pid, terminateTimeout, LogPath(dataDir))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ResidentBytes returns the resident memory of a process, or 0 where /proc does not say.
func ResidentBytes(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
