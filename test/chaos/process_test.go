//go:build linux

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a process of the program. It can be started again after it has exited; the output of all runs is kept in one file.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
	log   *os.File
}

func newProcess(t *testing.T, name string) *process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, log: log}
	t.Cleanup(func() {
		p.kill()
		log.Close()
	})
	return p
}

// start starts a command.
func (p *process) start(args ...string) {
	p.t.Helper()
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.ended = make(chan struct{})
	cmd, ended := p.cmd, p.ended
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// hasEnded reports whether the process has exited.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill kills the process with SIGKILL.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// stop ends the process with SIGTERM, and expects exit code 0.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("has not stopped after half a minute\n%s", p.tail())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("stopped with code %d\n%s", code, p.tail())
	}
}

// output returns the output of the program.
func (p *process) output() string {
	data, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// tail returns the last lines of the output, and the exit status if the process has exited.
func (p *process) tail() string {
	lines := strings.Split(strings.TrimSpace(p.output()), "\n")
	lines = lines[max(0, len(lines)-20):]
	if p.hasEnded() {
		lines = append(lines, fmt.Sprintf("the program has ended: %v", p.cmd.ProcessState))
	}
	return strings.Join(lines, "\n")
}
