package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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
	cmd.SetArgs([]string{"--unit-dir", dir, "--bin-dir", dir, "--name", "other", "--no-node", "--data-dir", "/data/with space", "--tls-san", "a.example", "--tls-san", "100%.example"})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "--tls-san") {
		t.Fatalf("a bad name gave %v", err)
	}
	cmd = installCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--unit-dir", dir, "--bin-dir", dir, "--name", "other", "--no-node", "--data-dir", "/data/with space", "--tls-san", "a.example,b.example"})
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
	if !strings.Contains(string(unit), "ExecStart="+filepath.Join(dir, "skiff")+" server") || strings.Contains(string(unit), "-dir="+dir) {
		t.Errorf("the unit does not run the copy:\n%s", unit)
	}
	if !strings.Contains(out.String(), "systemctl enable --now skiff-other.service") {
		t.Errorf("it says:\n%s", out.String())
	}
}

// TestInstallProgram: the service runs a copy that only root can change, put in place of an earlier one by rename.
func TestInstallProgram(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "victim"), []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("victim", filepath.Join(dir, "skiff")); err != nil {
		t.Fatal(err)
	}
	program, err := installProgram(dir)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(program); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy differs: %v", err)
	}
	info, err := os.Lstat(program)
	if err != nil || info.Mode() != 0o755 || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		t.Errorf("the copy: %v, %v", info, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "victim")); err != nil || string(data) != "untouched" {
		t.Errorf("a link was followed: %q, %v", data, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := installProgram(dir); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a directory that others may write to gave %v", err)
	}
}

// TestUnitHardening: every unit is started again for ever and lets containers go on; one with a node hands nothing on to containers that
// would break them, and one without a node is sandboxed.
func TestUnitHardening(t *testing.T) {
	always := []string{"StartLimitIntervalSec=0", "Restart=always", "Delegate=yes", "KillMode=process", "TasksMax=infinity", "LimitNOFILE=1048576", "OOMPolicy=continue"}
	sandbox := []string{"NoNewPrivileges=", "CapabilityBoundingSet=", "LockPersonality=", "MemoryDenyWriteExecute=", "Private", "Protect", "Restrict", "SystemCall"}
	for _, node := range []bool{true, false} {
		text := unit("/usr/local/bin/skiff", []string{"server"}, node)
		head, service, _ := strings.Cut(text, "[Service]")
		if !strings.Contains(head, "StartLimitIntervalSec=0\n") {
			t.Errorf("node %v: StartLimitIntervalSec is not in [Unit]:\n%s", node, text)
		}
		for _, line := range always {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("node %v: no %s in\n%s", node, line, text)
			}
		}
		for _, setting := range sandbox {
			if strings.Contains(service, "\n"+setting) == node {
				t.Errorf("node %v: %s in\n%s", node, setting, text)
			}
		}
		if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
			file := filepath.Join(t.TempDir(), "skiff.service")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/usr/local/bin/skiff", "/bin/true")), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(analyze, "verify", file).CombinedOutput(); err != nil || strings.Contains(string(out), "Unknown key") {
				t.Errorf("node %v: systemd-analyze verify: %v\n%s", node, err, out)
			}
		}
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
