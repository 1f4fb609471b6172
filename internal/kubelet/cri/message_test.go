package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const stamp = "2026-01-01T00:00:00.000000000Z "

// The end of a log is what the container wrote, without what the runtime adds, and no more than an API object should hold.
func TestLastLogLines(t *testing.T) {
	many := func(n int, line string) string { return strings.Repeat(stamp+"stdout F "+line+"\n", n) }
	for name, test := range map[string]struct{ log, want string }{
		"empty":            {"", ""},
		"both streams":     {stamp + "stdout F one\n" + stamp + "stderr F two\n", "one\ntwo\n"},
		"a line in pieces": {stamp + "stdout P hel\n" + stamp + "stdout P lo \n" + stamp + "stdout F world\n", "hello world\n"},
		"spaces are kept":  {stamp + "stdout F   a  b \n", "  a  b \n"},
		"an empty line":    {stamp + "stdout F \n", "\n"},
		"cut off at first": {"dout F lost\n" + stamp + "stdout F kept\n", "kept\n"},
		"not finished":     {stamp + "stdout F kept\n" + stamp[:10], "kept\n"},
		"many lines":       {many(100, "x"), strings.Repeat("x\n", maxLogLines)},
		"long lines":       {many(3, strings.Repeat("y", 1500)), (strings.Repeat("y", 1500) + "\n" + strings.Repeat("y", 1500) + "\n")[3002-maxLogBytes:]},
		"longer than read": {many(100, strings.Repeat("z", 1000)), strings.Repeat("z", 45) + "\n" + strings.Repeat("z", 1000) + "\n" + strings.Repeat("z", 1000) + "\n"},
	} {
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, []byte(test.log), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := lastLogLines(path)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %d bytes %.80q, %v; want %d, %.80q", name, len(got), got, err, len(test.want), test.want)
		}
	}
}

// TestTerminationMessageUnreadable has something else than a file where a termination message should be, or nothing.
func TestTerminationMessageUnreadable(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, TerminationMessageDir, "a")
	if err := os.MkdirAll(filepath.Join(own, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	at := func(name string) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{Mounts: []*runtimeapi.Mount{{ContainerPath: "/words", HostPath: filepath.Join(own, name)}}}
	}
	c := &Container{Name: "a", ExitCode: 1, Message: "exec failed", LogPath: filepath.Join(dir, "none"),
		annotations: map[string]string{annotationTerminationPath: "/words", annotationTerminationPolicy: "FallbackToLogsOnError"}}
	c.addTerminationMessage(at("directory"), dir)
	path := filepath.Join(own, "directory")
	if want := fmt.Sprintf("exec failed: Error on reading termination log %s: open %s: not a regular file", path, path); c.Message != want {
		t.Errorf("a directory instead of a file: %q", c.Message)
	}
	c.Message = ""
	c.addTerminationMessage(at("gone"), dir)
	if !strings.HasPrefix(c.Message, "Error on reading termination message from logs: ") {
		t.Errorf("neither file nor log: %q", c.Message)
	}
	c.Message, c.Reason = "", "ContainerCannotRun" // its log is about another run
	if c.addTerminationMessage(&runtimeapi.ContainerStatus{}, dir); c.Message != "" {
		t.Errorf("a container that never ran said %q", c.Message)
	}
}
