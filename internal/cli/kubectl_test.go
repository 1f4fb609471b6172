package cli

import (
	"os"
	"strings"
	"testing"
)

// TestKubectlOfAnother: root does not run a kubectl from the cache of a user whose HOME sudo kept.
func TestKubectlOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a directory of another user")
	}
	cache := t.TempDir()
	if err := os.Chown(cache, 1, 1); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", cache)
	if program, err := findKubectl(); err == nil || !strings.Contains(err.Error(), "belongs to the user with uid 1") {
		t.Errorf("found %q, %v", program, err)
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) > 0 {
		t.Errorf("written: %v, %v", entries, err)
	}
}
