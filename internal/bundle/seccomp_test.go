package bundle

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// The profile of pause says no to all but what it names, each once; what pause itself does is among it, and what could be of use to somebody else is not.
func TestPauseProfile(t *testing.T) {
	data, err := pauseProfile()
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		DefaultAction string
		Syscalls      []struct {
			Names  []string
			Action string
		}
	}
	if err := json.Unmarshal(data, &p); err != nil || p.DefaultAction != "SCMP_ACT_ERRNO" || len(p.Syscalls) != 1 || p.Syscalls[0].Action != "SCMP_ACT_ALLOW" {
		t.Fatalf("%v: %s", err, data)
	}
	names := p.Syscalls[0].Names
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) || strings.Contains(strings.Join(names, ""), "\n") {
		t.Errorf("some are there twice: %q", names)
	}
	for _, name := range []string{"execve", "rt_sigaction", "rt_sigreturn", "pause", "wait4", "exit_group"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range []string{"mount", "unshare", "setns", "ptrace", "bpf", "socket", "connect", "kill", "keyctl", "init_module", "reboot", "chmod", "unlink"} {
		if slices.Contains(names, name) {
			t.Errorf("%s is allowed", name)
		}
	}
}
