package kubectl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// terminal is where a test types commands.
type terminal struct {
	t    testing.TB
	args []string // before those of each command
}

// newTerminal has no home and no cluster but the one that args name.
func newTerminal(t testing.TB, args ...string) *terminal {
	t.Helper()
	home := t.TempDir()
	for key, value := range map[string]string{"HOME": home, "KUBECONFIG": filepath.Join(home, "none"), "KUBECACHEDIR": filepath.Join(home, "cache")} {
		previous, was := os.LookupEnv(key)
		if err := os.Setenv(key, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if was {
				os.Setenv(key, previous)
			} else {
				os.Unsetenv(key)
			}
		})
	}
	return &terminal{t, args}
}

// exited is what a command that fails panics with.
type exited struct {
	message string
	code    int
}

// kubectl types a command, and returns what it printed, and what it said when it failed.
func (term *terminal) kubectl(args ...string) (stdout, failure string) {
	term.t.Helper()
	stdout, _, failure = term.all(args...)
	return stdout, failure
}

func (term *terminal) all(args ...string) (stdout, stderr, failure string) {
	term.t.Helper()
	var out, errOut bytes.Buffer
	all := append(append([]string{"kubectl"}, args...), term.args...)
	if dash := indexOf(args, "--"); dash >= 0 {
		all = append(append(append([]string{"kubectl"}, args[:dash]...), term.args...), args[dash:]...)
	}
	before := os.Args // --record writes them down
	os.Args = all
	defer func() { os.Args = before }()
	cmdutil.BehaviorOnFatal(func(message string, code int) { panic(exited{message, code}) })
	defer cmdutil.DefaultBehaviorOnFatal()
	root := New(all, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	root.SetArgs(all[1:])
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SilenceErrors, root.SilenceUsage = true, true
	func() {
		defer func() {
			if p := recover(); p != nil {
				e, ok := p.(exited)
				if !ok {
					panic(p)
				}
				failure = strings.TrimSpace(e.message)
			}
		}()
		if err := root.Execute(); err != nil {
			failure = "error: " + err.Error()
		}
	}()
	return out.String(), errOut.String(), failure
}

// must types a command that is to succeed.
func (term *terminal) must(args ...string) string {
	term.t.Helper()
	out, failure := term.kubectl(args...)
	if failure != "" {
		term.t.Fatalf("kubectl %s: %s", strings.Join(args, " "), failure)
	}
	return out
}

func indexOf(list []string, s string) int {
	for i, v := range list {
		if v == s {
			return i
		}
	}
	return -1
}

// words splits a line as a shell does, as far as single quotes go.
func words(line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			if n := len(out); n > 0 && strings.HasSuffix(out[n-1], "=") {
				out[n-1] += part
			} else {
				out = append(out, part)
			}
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}
