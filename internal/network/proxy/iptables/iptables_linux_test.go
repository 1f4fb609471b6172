package iptables

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/network/proxy/model"
	"skiff/internal/network/proxy/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

var options = proxytest.Options{
	New:   func(c model.Config) (model.Mode, error) { return New(c) },
	Clean: Clean,
}

// TestSuite runs the suite with each variant of iptables.
func TestSuite(t *testing.T) {
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			use(t, variant)
			proxytest.Run(t, options)
		})
	}
}

// use makes a variant of iptables the one on the PATH.
func use(t *testing.T, variant string) {
	t.Helper()
	dir := t.TempDir()
	for _, base := range []string{"iptables", "ip6tables"} {
		for _, what := range []string{"", "-save", "-restore"} {
			path, err := exec.LookPath(base + "-" + variant + what)
			if err != nil {
				t.Fatalf("`make packages` installs it: %v", err)
			}
			if err := os.Symlink(path, filepath.Join(dir, base+what)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// run runs a program and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var output strings.Builder
	cmd.Stderr = &output
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, output.String())
	}
	return string(out)
}

// listing returns the output of iptables-save without comments and counters.
func listing(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(run(t, "iptables-save") + run(t, "ip6tables-save")) {
		if line[0] == ':' {
			line, _, _ = strings.Cut(line, " [")
			line += "\n"
		}
		if line[0] != '#' {
			out.WriteString(line)
		}
	}
	return out.String()
}
