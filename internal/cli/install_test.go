package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"skiff/internal/cluster"
)

// The unit runs the server with the flags that were given, as a service manager has to have them written.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	cmd := installCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--unit-dir", dir, "--name", "other", "--no-node", "--data-dir", "/data/with space", "--tls-san", "a.example", "--tls-san", "100%.example"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "--tls-san") {
		t.Fatalf("a bad name gave %v", err)
	}
	cmd = installCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--unit-dir", dir, "--name", "other", "--no-node", "--data-dir", "/data/with space", "--tls-san", "a.example,b.example"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile(filepath.Join(dir, "skiff-other.service"))
	if err != nil {
		t.Fatal(err)
	}
	want := ` server "--data-dir=/data/with space" --name=other --no-node=true --tls-san=a.example --tls-san=b.example` + "\n"
	if !strings.Contains(string(unit), want) || !strings.Contains(string(unit), "KillMode=process\n") {
		t.Errorf("the unit:\n%s", unit)
	}
	if !strings.Contains(out.String(), "systemctl enable --now skiff-other.service") {
		t.Errorf("it says:\n%s", out.String())
	}
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{`plain`: `plain`, `50%`: `50%%`, `a $b`: `"a $$b"`, `say "hi"\`: `"say \"hi\"\\"`} {
		if got := quote(word); got != want {
			t.Errorf("quote(%s) = %s, want %s", word, got, want)
		}
	}
}

func TestNoNode(t *testing.T) {
	for args, want := range map[string]bool{"": true, "--no-node": false, "--no-node=true": false, "--no-node=false": true} {
		var c cluster.Config
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		addNodeFlags(f, &c)
		if err := f.Parse(strings.Fields(args)); err != nil || c.Node.Run != want {
			t.Errorf("%q: runs a node is %v, %v", args, c.Node.Run, err)
		}
	}
}
