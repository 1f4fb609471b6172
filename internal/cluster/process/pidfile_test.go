package process

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestPIDFile: one process at a time holds the lock of a data directory, and others can see which.
func TestPIDFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if pid, err := PID(dir); pid != 0 || err != nil {
		t.Errorf("process %d, %v", pid, err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var unlocks []func()
	for range 8 {
		wg.Go(func() {
			unlock, err := LockPIDFile(dir)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			unlocks = append(unlocks, unlock)
		})
		wg.Go(func() { // PID does not keep LockPIDFile from locking
			for range 20 {
				if pid, err := PID(dir); err != nil || pid != 0 && pid != os.Getpid() {
					t.Errorf("process %d, %v", pid, err)
				}
			}
		})
	}
	wg.Wait()
	if len(unlocks) != 1 {
		t.Fatalf("%d have locked it", len(unlocks))
	}
	if pid, err := PID(dir); pid != os.Getpid() || err != nil {
		t.Errorf("process %d, %v", pid, err)
	}
	if err := CheckUnused(dir); err == nil {
		t.Error("in use, and CheckUnused does not say so")
	}
	unlocks[0]()
	if pid, err := PID(dir); pid != 0 || err != nil {
		t.Errorf("process %d, %v", pid, err)
	}
	unlock, err := LockPIDFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestLastLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]string{"": "", "one": "one", "one\ntwo\n": "two", "one\n\n\n": "one"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := LastLine(file); got != want {
			t.Errorf("%q ends with %q", text, got)
		}
	}
	if got := LastLine(file + ".none"); !strings.Contains(got, "no such file") {
		t.Error(got)
	}
}
