package cli_test

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"skiff/test/program"
)

// TestUpKeepsNoDescriptor: a cluster in the background does not hold open what whoever started it has open, such as a lock of flock(1).
func TestUpKeepsNoDescriptor(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.CommandContext(t.Context(), program.Path(t), "up", "--no-node", "--port", u.port, "--data-dir", u.data)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), "HOME="+u.home), []*os.File{write}
	out, err := cmd.CombinedOutput()
	write.Close()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := read.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := read.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the pipe is still open elsewhere: %v", err)
	}
}
