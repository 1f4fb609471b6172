package podnet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestSweep(t *testing.T) {
	state, results := t.TempDir(), t.TempDir()
	old, now := time.Now().Add(-time.Minute), time.Now()
	write := func(dir, name, content string, at time.Time) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	addresses := filepath.Join(state, NetworkName)
	if err := os.Mkdir(addresses, 0o700); err != nil {
		t.Fatal(err)
	}
	write(addresses, "10.1.0.2", "known\r\neth0", old)
	write(addresses, "10.1.0.3", "gone\r\neth0", old)
	write(addresses, "fd00::3", "gone\r\neth0", old)
	write(addresses, "10.1.0.4", "new\r\neth0", now) // its sandbox is being created
	write(addresses, "last_reserved_ip.0", "10.1.0.4", old)
	write(addresses, "lock", "", old)
	for name, made := range map[string]string{"known": "/run/ours/netns/1", "gone": "/run/ours/netns/2", "others": "/run/others/netns/3"} {
		write(results, "skiff-"+name+"-eth0", fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"netns":%q}`, name, made), old)
	}
	write(results, "skiff-new-eth0", `{"containerId":"new","netns":"/run/ours/netns/4"}`, now)
	write(results, "strange", "not JSON", old)

	known, before := map[string]bool{"known": true}, now.Add(-time.Second)
	if err := (Config{State: state}).sweepAddresses(known, before); err != nil {
		t.Error(err)
	}
	if err := sweepResults(results, known, before, "/run/ours"); err != nil {
		t.Error(err)
	}
	for dir, want := range map[string][]string{
		addresses: {"10.1.0.2", "10.1.0.4", "last_reserved_ip.0", "lock"},
		results:   {"skiff-known-eth0", "skiff-new-eth0", "skiff-others-eth0", "strange"},
	} {
		var left []string
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if !slices.Equal(left, want) {
			t.Errorf("left are %q, want %q", left, want)
		}
	}
	// There may be no state at all.
	if err := (Config{State: filepath.Join(state, "none")}).sweepAddresses(known, before); err != nil {
		t.Error(err)
	}
}
