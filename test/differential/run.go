package differential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Server is a fresh API server that scripts run against, with the kubectl to use.
type Server struct {
	Kubeconfig string
	Kubectl    string
	CacheDir   string // kubectl's discovery cache, shared between scripts
}

// commandTimeout bounds one command. Usually none takes a tenth of it.
const commandTimeout = 90 * time.Second

// prelude defines the shell functions that scripts use beyond kubectl and the usual tools.
const prelude = `
# await N FILE: return when FILE has N lines.
await() {
  for _ in $(seq 300); do [ "$(wc -l <"$2")" -ge "$1" ] && return 0; sleep .1; done
  echo "await: $2 has $(wc -l <"$2") lines after 30 seconds"; return 1
}
# lines N CMD...: return when CMD prints N lines.
lines() {
  local n=$1 out; shift
  for _ in $(seq 150); do out=$("$@" 2>/dev/null) && [ "$(grep -c . <<<"$out")" -eq "$n" ] && return 0; sleep .2; done
  echo "lines: after 30 seconds $* does not print $n lines but"; echo "$out"; return 1
}
# shows TEXT CMD...: return when what CMD prints contains TEXT.
shows() {
  local text=$1 out; shift
  for _ in $(seq 150); do out=$("$@" 2>&1); [[ $out == *"$text"* ]] && return 0; sleep .2; done
  echo "shows: after 30 seconds $* does not print \"$text\" but"; echo "$out"; return 1
}
# ... | unordered: what is printed comes in an order that no two runs share. Its lines are sorted once they are normalised.
unordered() { printf '\036\n'; cat; printf '\036\n'; }
`

// Run runs a script against the server and returns it with the normalised outputs of this run.
func (s Server) Run(ctx context.Context, script *Script) (*Script, error) {
	sh, err := s.newShell(ctx, script.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", script.Path, err)
	}
	defer sh.close()
	if script.Cluster() {
		if _, err := sh.must(ctx, untilNodesAreReady); err != nil {
			return nil, fmt.Errorf("%s: there are no nodes: %w", script.Path, err)
		}
	} else if err := sh.link(filepath.Join(filepath.Dir(script.Path), "files")); err != nil {
		return nil, err
	}
	n := newNormaliser(script.Literals(), sh.dir, sh.server)
	played := &Script{Name: script.Name, Path: script.Path}
	for _, step := range script.Steps {
		output, err := sh.run(ctx, step.Command)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", script.Path, step.Line, err)
		}
		step.Output = n.normalise(output)
		played.Steps = append(played.Steps, step)
	}
	return played, nil
}

// untilNodesAreReady is the command that waits for what the first pod of a script needs: ready nodes and a service account.
const untilNodesAreReady = `
template='{{range .items}}{{if not .spec.taints}}{{if .spec.podCIDR}}{{range .status.conditions}}{{if eq .type "Ready"}}{{.status}}{{"\n"}}{{end}}{{end}}{{end}}{{end}}{{end}}'
lines 3 kubectl get nodes -o go-template="$template" && lines 1 kubectl get serviceaccount default -o name`

// A shell runs the commands of one script.
type shell struct {
	dir    string // the directory that commands run in
	env    []string
	server string // the API server's URL
	groups []int  // process groups that outlive their command
}

// newShell prepares a directory with kubectl on its PATH, and a kubeconfig whose namespace is a new one of that name.
func (s Server) newShell(ctx context.Context, namespace string) (*shell, error) {
	home, err := os.MkdirTemp("", "skiff-differential-")
	if err != nil {
		return nil, err
	}
	sh := &shell{dir: filepath.Join(home, "work")}
	bin := filepath.Join(home, "bin")
	kubectl, err := filepath.Abs(s.Kubectl)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{sh.dir, bin} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Symlink(kubectl, filepath.Join(bin, "kubectl")); err != nil {
		return nil, err
	}
	sh.env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + sh.dir, "KUBECACHEDIR=" + s.CacheDir,
		"LC_ALL=C", "TZ=UTC",
	}
	given, err := filepath.Abs(s.Kubeconfig)
	if err != nil {
		return nil, err
	}
	own := filepath.Join(home, "kubeconfig")
	sh.env = append(sh.env, "KUBECONFIG="+own)
	sh.server, err = sh.must(ctx, fmt.Sprintf(`
		kubectl config view --kubeconfig %q --raw --flatten --minify >$KUBECONFIG &&
		kubectl config set-context --current --namespace %s >/dev/null &&
		kubectl create namespace %s >/dev/null || { echo "a fresh server is needed"; exit 1; }
		kubectl config view -o jsonpath='{.clusters[0].cluster.server}'`, given, namespace, namespace))
	if err != nil {
		sh.close()
		return nil, err
	}
	return sh, nil
}

// link makes a directory available to the commands under its own name.
func (sh *shell) link(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	return os.Symlink(dir, filepath.Join(sh.dir, filepath.Base(dir)))
}

// run returns the output of a command, with its exit status if that is not zero. It fails only if the command cannot be started.
func (sh *shell) run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-c", prelude+command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = sh.dir, sh.env, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if cmd.Process != nil && syscall.Kill(-cmd.Process.Pid, 0) == nil {
		sh.groups = append(sh.groups, cmd.Process.Pid)
	}
	if ctx.Err() != nil {
		status(&out, "no end after %s", commandTimeout)
		return out.String(), nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status(&out, "exit %d", exit.ExitCode())
		err = nil
	}
	return out.String(), err
}

// status appends a line with the exit status to an output.
func status(out *bytes.Buffer, format string, args ...any) {
	if out.Len() > 0 && !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
		out.WriteByte('\n')
	}
	fmt.Fprintf(out, "["+format+"]\n", args...)
}

func (sh *shell) must(ctx context.Context, command string) (string, error) {
	out, err := sh.run(ctx, command)
	if err == nil && strings.Contains("\n"+out, "\n[exit ") {
		err = errors.New(strings.TrimSpace(out))
	}
	return out, err
}

// close kills the background processes of commands and removes the directory.
func (sh *shell) close() {
	for _, group := range sh.groups {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	_ = os.RemoveAll(filepath.Dir(sh.dir))
}
