//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/test/program"
)

func TestMain(m *testing.M) { program.Main(m) }

// server is the program, running in a process of its own.
type server struct {
	t    *testing.T
	data string
	port string
	// wrapper, if set, is a command that runs the program, in the process it was started in itself.
	wrapper []string
	cmd     *exec.Cmd
	ended   chan struct{}
	log     *os.File
}

func newServer(t *testing.T, data string) *server {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, data: data, port: program.Port(t), log: log}
	t.Cleanup(func() {
		s.kill()
		log.Close()
	})
	return s
}

// start starts the process and does not wait until it is ready.
func (s *server) start() {
	s.t.Helper()
	// Its coming back says that the API answers.
	if err := os.Remove(s.kubeconfig()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	args := append(slices.Clone(s.wrapper), program.Path(s.t), "server", "--no-node", "--controllers=-*", "--data-dir", s.data, "--port", s.port) // nobody else writes
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
}

func (s *server) kubeconfig() string { return filepath.Join(s.data, "admin.kubeconfig") }

// ready waits until the API answers.
func (s *server) ready() {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(s.kubeconfig()); err == nil {
			return
		}
		select {
		case <-s.ended:
			s.t.Fatal(s.tail())
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("not ready after a minute\n%s", s.tail())
		}
	}
}

// kill ends the process without warning.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// stop asks the process to end.
func (s *server) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		s.t.Fatalf("has not stopped after half a minute\n%s", s.tail())
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		s.t.Errorf("stopped with code %d\n%s", code, s.tail())
	}
}

// tail is what the program said last, and how it ended if it has.
func (s *server) tail() string {
	data, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	lines = lines[max(0, len(lines)-20):]
	select {
	case <-s.ended:
		lines = append(lines, fmt.Sprintf("the program has ended: %v", s.cmd.ProcessState))
	default:
	}
	return strings.Join(lines, "\n")
}

// client speaks to the server, also after it was started anew: address, certificate and token stay.
func (s *server) client() kubernetes.Interface {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.Timeout = 0
	config.UserAgent = fmt.Sprintf("chaos/%d", os.Getpid())
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}
