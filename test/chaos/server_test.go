//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/test/program"
)

func TestMain(m *testing.M) { program.Main(m) }

// server is a process of `skiff server`, as `skiff up` starts it.
type server struct {
	*process
	data string
	port string
	// wrapper, if set, is a command that executes the program in its own process.
	wrapper []string
	flags   []string
}

func newServer(t *testing.T, data string) *server {
	t.Helper()
	return &server{process: newProcess(t, "server"), data: data, port: program.Port(t), flags: []string{"--controllers=-*"}} // only the test writes
}

// start starts the process and does not wait until it is ready.
func (s *server) start() {
	s.t.Helper()
	// The server writes the file again when the API is ready.
	if err := os.Remove(s.kubeconfig()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	args := append(slices.Clone(s.wrapper), program.Path(s.t), "server", "--no-node", "--data-dir", s.data, "--port", s.port)
	s.process.start(append(args, s.flags...)...)
}

func (s *server) kubeconfig() string { return filepath.Join(s.data, "admin.kubeconfig") }

// ready waits until the API answers.
func (s *server) ready() {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(s.kubeconfig()); err == nil {
			return
		}
		if s.hasEnded() {
			s.t.Fatal(s.tail())
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("not ready after a minute\n%s", s.tail())
		}
	}
}

// client returns a client that also works after the server was restarted: address, certificate and token stay.
func (s *server) client() kubernetes.Interface {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.Timeout = 0
	config.WarningHandler = rest.NoWarnings{}
	config.UserAgent = fmt.Sprintf("chaos/%d", os.Getpid())
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}
