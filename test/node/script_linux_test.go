package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// step is a command of a script and its expected output.
type step struct {
	line          int
	command, want string
}

// parseScript reads steps: "$ " begins a command, "> " goes on with it, what follows is expected, and "#" and blank lines are for the reader.
func parseScript(text string) (steps []step) {
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		var last *step
		if len(steps) > 0 {
			last = &steps[len(steps)-1]
		}
		if rest, ok := strings.CutPrefix(line, "$ "); ok {
			steps = append(steps, step{line: n + 1, command: rest})
		} else if rest, ok := strings.CutPrefix(line, "> "); ok && last != nil {
			last.command += "\n" + rest
		} else if line != "" && !strings.HasPrefix(line, "#") && last != nil {
			last.want += line + "\n"
		}
	}
	return steps
}

// greeting is what client-go says, if it is slow, of the empty message by which a WebSocket server, upstream's too, says that it is there.
var greeting = regexp.MustCompile(`(?m)^E\d{4} .* Unknown stream id 1, discarding message\n`)

// stepTimeout is how long a command of a script may take.
const stepTimeout = 90 * time.Second

// kubectlScript runs testdata/kubectl.txt with the kubectl on PATH.
func kubectlScript(s *testNamespace) {
	dir := s.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	for from, to := range map[string]string{s.kubeconfig: config, "testdata/pods.yaml": filepath.Join(dir, "pods.yaml")} {
		data, err := os.ReadFile(from)
		if err != nil {
			s.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			s.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.Symlink(s.kubectl, filepath.Join(dir, "bin", "kubectl")); err != nil {
		s.Fatal(err)
	}
	environment := append(os.Environ(), "KUBECONFIG="+config, "HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	run := func(command string) string {
		ctx, cancel := context.WithTimeout(s.Context(), stepTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-c", command)
		cmd.Dir, cmd.Env = dir, environment
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that nothing of it is left
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		text := greeting.ReplaceAllString(strings.ReplaceAll(string(out), "\r", ""), "")
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			text += fmt.Sprintf("[exit %d]\n", exit.ExitCode())
		} else if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			text += err.Error() + "\n"
		}
		return text
	}
	if out := run("kubectl config set-context --current --namespace " + s.name + " >/dev/null"); out != "" {
		s.Fatal(out)
	}
	text, err := os.ReadFile("testdata/kubectl.txt")
	if err != nil {
		s.Fatal(err)
	}
	for _, step := range parseScript(string(text)) {
		if got := run(step.command); got != step.want {
			s.Errorf("kubectl.txt:%d:\n$ %s\nsays:\n%swant:\n%s", step.line, step.command, got, step.want)
		}
	}
}
