package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Process is the program while it runs.
type Process struct {
	t     testing.TB
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// stopTime bounds how long the program may take to end after SIGTERM.
const stopTime = 30 * time.Second

// Start starts the program. When the test ends it is asked to end, and its end is waited for.
func Start(t testing.TB, args ...string) *Process {
	t.Helper()
	dir := t.TempDir()
	p := &Process{t: t, log: filepath.Join(dir, "log"), ended: make(chan struct{}), cmd: exec.Command(Path(t), args...)}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG=")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(p.stop)
	return p
}

func (p *Process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(stopTime):
		p.t.Errorf("%v has not stopped after %v:\n%s", p.cmd.Args, stopTime, p.Log())
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// WaitFor waits until a file is there, such as the kubeconfig that a server writes when its API answers.
func (p *Process) WaitFor(file string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !exists(file); time.Sleep(2 * time.Millisecond) {
		select {
		case <-p.ended:
			p.t.Fatalf("%v ended: %v\n%s", p.cmd.Args, p.cmd.ProcessState, p.Log())
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%v: no %s after a minute\n%s", p.cmd.Args, file, p.Log())
		}
	}
}

// Log is what the program has written.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
