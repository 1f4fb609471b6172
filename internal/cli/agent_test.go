package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/cluster"
)

func TestTaints(t *testing.T) {
	var got taints
	for _, text := range []string{"example.com/new=yes:NoSchedule,gone:NoExecute", "later:PreferNoSchedule"} {
		if err := got.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if want := "example.com/new=yes:NoSchedule,gone:NoExecute,later:PreferNoSchedule"; got.String() != want {
		t.Errorf("%s, want %s", got.String(), want)
	}
	for text, want := range map[string]string{"key": "is not like", "key=value:Never": "the effect", "-:NoSchedule": "name part", "a=b c:NoExecute": "a valid label"} {
		if err := new(taints).Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

const someToken = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a::abcdef.0123456789abcdef"

// The service of an agent finds its token where nobody else does.
func TestInstallAgent(t *testing.T) {
	units, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	var out strings.Builder
	cmd := installCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"agent", "--unit-dir", units, "--bin-dir", units, "--data-dir", data, "--server", "192.0.2.1", "--token", someToken, "--node-name", "one", "--node-ip", "192.0.2.2"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile(filepath.Join(units, "skiff-agent.service"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(data, cluster.AgentTokenFile)
	want := "ExecStart=" + filepath.Join(units, "skiff") + " agent --data-dir=" + data + " --node-ip=192.0.2.2 --node-name=one --server=192.0.2.1 --token-file=" + file + "\n"
	if !strings.Contains(string(unit), want) || strings.Contains(string(unit), "abcdef") {
		t.Errorf("the unit:\n%s", unit)
	}
	if token, err := os.ReadFile(file); err != nil || string(token) != someToken+"\n" {
		t.Errorf("the token is %q, %v", token, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
}

// What is wrong with the flags of an agent is said before anything is done.
func TestAgentFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--server is needed":               {"--token", someToken},
		"is not like https://":             {"--server", "https://", "--token", someToken},
		"--token: this is not a token":     {"--server", "192.0.2.1", "--token", "x"},
		"exclude each other":               {"--server", "192.0.2.1", "--token", someToken, "--token-file", "/dev/null"},
		"--token-file":                     {"--server", "192.0.2.1", "--token-file", "/nowhere"},
		"--hostname-override gives":        {"--server", "192.0.2.1", "--token", someToken, "--node-name", "Not a name"},
		`--node-ip "x" is not`:             {"--server", "192.0.2.1", "--token", someToken, "--node-name", "one", "--node-ip", "x"},
		"--container-runtime-endpoint \"x": {"--server", "192.0.2.1", "--token", someToken, "--node-name", "one", "--node-ip", "192.0.2.2", "--container-runtime-endpoint", "x"},
	} {
		cmd := agentCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(args, "--data-dir", filepath.Join(t.TempDir(), "data")))
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// A token is for one machine unless its maker says otherwise.
func TestTokensAreForOneMachine(t *testing.T) {
	create, _, err := tokenCommand().Find([]string{"create"})
	if err != nil {
		t.Fatal(err)
	}
	if uses := create.Flags().Lookup("uses"); uses == nil || uses.DefValue != "1" {
		t.Errorf("--uses is %+v", uses)
	}
}
