package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/cluster/process"
)

// TestDataDirRefused: everything that writes to a data directory or believes what it says refuses one that other users may write to. Package datadir tests
// which ones are refused.
func TestDataDirRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "group")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func() error{
		"LockPIDFile": func() error {
			unlock, err := process.LockPIDFile(dir)
			if err == nil {
				unlock()
			}
			return err
		},
		// Were it not refused, this program would be run, which then has no test to run.
		"Launch": func() error { _, err := Launch(t.Context(), dir, []string{"-test.run=^$"}); return err },
		"Start": func() error {
			s, err := Start(t.Context(), Config{DataDir: dir, Port: 1, Log: quiet()})
			if err == nil {
				s.Stop()
			}
			return err
		},
		"Terminate": func() error { _, err := process.Terminate(t.Context(), dir); return err },
		"Purge":     func() error { return Purge(dir, "x") },
		"Inspect":   func() error { _, err := Inspect(t.Context(), dir); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("%s answers %v", what, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("%v was written", entries)
	}
}
