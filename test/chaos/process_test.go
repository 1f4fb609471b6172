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

// process is the program, running with some arguments. It can be started again after it has ended; what it says is kept together.
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

// start runs a command and does not wait.
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

// hasEnded reports whether the process runs no more, by itself or not.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the process without warning.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// stop asks the process to end.
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

// said returns all that the program has said.
func (p *process) said() string {
	data, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// tail returns what the program said last, and how it ended if it has.
func (p *process) tail() string {
	lines := strings.Split(strings.TrimSpace(p.said()), "\n")
	lines = lines[max(0, len(lines)-20):]
	if p.hasEnded() {
		lines = append(lines, fmt.Sprintf("the program has ended: %v", p.cmd.ProcessState))
	}
	return strings.Join(lines, "\n")
}
