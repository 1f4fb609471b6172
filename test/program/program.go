package program

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// built are the directories of programs that were built for this run of tests.
var (
	builtMu sync.Mutex
	built   []string
)

var (
	findSkiff   = sync.OnceValues(func() (string, error) { return find("SKIFF", "skiff") })
	findKubectl = sync.OnceValues(func() (string, error) { return find("KUBECTL", "kubectl") })
)

// find returns where a program is: what the variable says, else in bin, else one that is built for the occasion. With an error it returns what the build said.
func find(variable, name string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		return path, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if path := filepath.Join(root, "bin", name); exists(path) {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "skiff-program-")
	if err != nil {
		return "", err
	}
	builtMu.Lock()
	built = append(built, dir)
	builtMu.Unlock()
	path := filepath.Join(dir, name)
	args := []string{"build", "-trimpath", "-o", path}
	if slim := filepath.Join(root, "build", "slim", "go.mod"); exists(slim) { // as make builds it, so that nothing is compiled twice
		args = append(args, "-modfile", slim, "-tags", "grpcnotrace")
	}
	cmd := exec.Command("go", append(args, "./cmd/"+name)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return path, nil
}

// moduleRoot returns the nearest directory above the test's that has a go.mod: go test runs a test in the directory of its package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for !exists(filepath.Join(dir, "go.mod")) {
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod in the test's directory or above it: run the test with go test")
		}
		dir = filepath.Dir(dir)
	}
	return dir, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Path is where the program is: what $SKIFF says, else bin/skiff, else one that is built for the occasion (see Main).
func Path(t testing.TB) string {
	t.Helper()
	path, err := findSkiff()
	if err != nil {
		t.Fatalf("building skiff: %v\n%s", err, path)
	}
	return path
}

// Kubectl is where kubectl is: what $KUBECTL says, else bin/kubectl, else one that is built for the occasion (see Main).
func Kubectl(t testing.TB) string {
	t.Helper()
	path, err := findKubectl()
	if err != nil {
		t.Fatalf("building kubectl: %v\n%s", err, path)
	}
	return path
}

// Main runs the tests of a package that uses Path or Kubectl, and removes what was built for them.
func Main(m *testing.M) {
	code := m.Run()
	for _, dir := range built {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// Run runs the program with a home directory of its own, and returns its exit code and what it wrote.
func Run(t testing.TB, home string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), Path(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG=")
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Port is one that is free now, and likely stays so while nobody listens on it: the system takes the ports it gives out by itself from
// higher ones.
func Port(t testing.TB) string {
	t.Helper()
	const first, last, tries = 20000, 32000, 100
	for range tries {
		port := strconv.Itoa(first + rand.IntN(last-first))
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatalf("found no free port between %d and %d", first, last)
	return ""
}
