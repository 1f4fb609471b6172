package bundle

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start runs a copy of sleep from a directory. ended is closed when it has ended and is reaped.
func start(t *testing.T, dir string) (cmd *exec.Cmd, ended chan struct{}) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bin", "shim")
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd, ended = exec.Command(path, "1000"), make(chan struct{})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	return cmd, ended
}

// Bundles stay while something runs from them.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	used, unused, current := filepath.Join(dir, "used"), filepath.Join(dir, "unused"), filepath.Join(dir, "current")
	cmd, ended := start(t, used)
	for _, d := range []string{unused, current, filepath.Join(dir, "part-123")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sweep(dir, current, slog.Default())
	if got := list(t, dir); got != "current used" {
		t.Errorf("left are %s", got)
	}
	cmd.Process.Kill()
	<-ended
	sweep(dir, current, slog.Default())
	if got := list(t, dir); got != "current" {
		t.Errorf("left are %s", got)
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestProcess(t *testing.T) {
	cmd, reaped := start(t, t.TempDir())
	p, err := openProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	p.wait(ctx) // it goes on, and so do we
	if err := syscall.Kill(p.pid, 0); err != nil || ctx.Err() == nil {
		t.Errorf("the process: %v, the context: %v", err, ctx.Err())
	}
	if p.runs(cmd.Path, "x") {
		t.Error("it runs with another configuration")
	}
	ended := make(chan struct{})
	go func() { p.wait(t.Context()); close(ended) }()
	again, err := openProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.end(t.Context(), politely...); err != nil {
		t.Fatal(err)
	}
	<-ended
	<-reaped
	if err := p.signal(syscall.SIGTERM); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
	p.close()
	if _, err := openProcess(cmd.Process.Pid); err == nil {
		t.Error("opened a process that has ended")
	}
}

func TestCgroup(t *testing.T) {
	path := "/skiff-bundle-test/" + t.Name()
	cmd, _ := start(t, t.TempDir())
	if err := enterCgroup(path, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if pids, err := inCgroup(path); err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("%v, %v", pids, err)
	}
	if err := removeCgroup(path); err == nil {
		t.Error("removed a cgroup with a process in it")
	}
	if err := endCgroup(t.Context(), path); err != nil {
		t.Error(err)
	}
	for range 2 { // nothing to do is no error
		if err := removeCgroup(path); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/skiff-bundle-test"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := rotateLog(path, 10); err != nil {
		t.Errorf("a log that is not there: %v", err)
	}
	os.WriteFile(path, []byte("short\n"), 0o600)
	if err := rotateLog(path, 10); err != nil || lastLine(path) != "short" {
		t.Errorf("a short log: %v", err)
	}
	os.WriteFile(path, []byte("long enough\nto begin anew\n"), 0o600)
	if err := rotateLog(path, 10); err != nil {
		t.Fatal(err)
	}
	if old, _ := os.ReadFile(path + ".1"); string(old) != "egin anew\n" {
		t.Errorf("kept %q", old)
	}
	if now, _ := os.ReadFile(path); len(now) != 0 {
		t.Errorf("now %q", now)
	}
}

// What is mounted is found by where it is, whatever its name.
func TestUnmount(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "run", "with a space")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	if err := unmountAll(filepath.Join(dir, "ru")); err != nil { // another directory
		t.Error(err)
	}
	if err := os.Remove(at); err == nil {
		t.Fatal("it was unmounted by mistake")
	}
	if err := unmountAll(filepath.Join(dir, "run")); err != nil {
		t.Error(err)
	}
	if err := os.Remove(at); err != nil {
		t.Error(err)
	}
}
