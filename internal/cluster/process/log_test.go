package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// lines returns the lines of a log and of its rotated files, oldest first.
func lines(t *testing.T, path string, rotated int) (all []string) {
	t.Helper()
	for i := rotated; i >= 0; i-- {
		file := path
		if i > 0 {
			file = fmt.Sprintf("%s.%d", path, i)
		}
		if _, err := os.Stat(file); err != nil {
			continue // it was not rotated as often yet
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			all = append(all, strings.TrimSuffix(line, "\n"))
		}
	}
	return all
}

// TestLogRotation: the log is appended to across starts, is never larger than its limit, and a number of rotated files is kept; what is written to the
// process's own descriptors goes to the new file.
func TestLogRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, logName)
	const limit, parts, starts, each = 1000, 2, 3, 100
	written := 0
	for start := range starts {
		stderr, err := openLog(os.OpenFile, path)
		if err != nil {
			t.Fatal(err)
		}
		l, err := openInherited(path, limit, parts, int(stderr.Fd()))
		if err != nil || l == nil {
			t.Fatal(l, err)
		}
		for range each {
			fmt.Fprintf(l, "line %06d\n", written)
			written++
		}
		fmt.Fprintf(stderr, "panic %d\n", start)
		if got := lines(t, path, parts); got[len(got)-1] != fmt.Sprintf("panic %d", start) || got[len(got)-2] != fmt.Sprintf("line %06d", written-1) {
			t.Errorf("the log ends with %q", got[len(got)-2:])
		}
		if LastLine(path) != fmt.Sprintf("panic %d", start) {
			t.Errorf("the last line is %q", LastLine(path))
		}
		stderr.Close()
		l.Close()
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != parts+1 {
		t.Errorf("there are %v, %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Size() > limit || info.Mode() != 0o600 || !IsLogFile(e.Name()) {
			t.Errorf("%v, %v", info, err)
		}
	}
	// The end of what was written is kept, without a gap, and reaches back before the last start.
	next := written - 1
	for i := range lines(t, path, parts) {
		all := lines(t, path, parts)
		line := all[len(all)-1-i]
		if strings.HasPrefix(line, "panic") {
			continue
		}
		if line != fmt.Sprintf("line %06d", next) {
			t.Fatalf("%q, want line %06d", line, next)
		}
		next--
	}
	if next >= written-each {
		t.Errorf("kept are only the lines after %d of %d", next, written)
	}
}

// TestLogWriters: lines that several goroutines write are each whole, and none is lost.
func TestLogWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), logName)
	stderr, err := openLog(os.OpenFile, path)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	l, err := openInherited(path, 1000, 100, int(stderr.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				fmt.Fprintf(l, "writer %d line %03d\n", w, i)
			}
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, line := range lines(t, path, len(entries)-1) {
		seen[line] = true
	}
	if len(seen) != 800 {
		t.Errorf("%d different lines", len(seen))
	}
}

// TestLogOfOthers: a process that logs elsewhere, to a service manager, does not touch the log; a link or a FIFO in its place is refused,
// and a link in a node's disk leads nowhere outside.
func TestLogOfOthers(t *testing.T) {
	dir := t.TempDir()
	other, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	path := filepath.Join(dir, logName)
	if l, err := openInherited(path, 1, 1, int(other.Fd())); l != nil || err != nil {
		t.Errorf("without a log: %v, %v", l, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := openInherited(path, 1, 1, int(other.Fd())); l != nil || err != nil {
		t.Errorf("with another's log: %v, %v", l, err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLog(os.OpenFile, link, "v1"); err == nil {
		t.Error("a link was followed")
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLog(os.OpenFile, fifo, "v1"); err == nil {
		t.Error("a FIFO was opened")
	}
	disk := filepath.Join(dir, "disk")
	if err := errors.Join(os.Mkdir(disk, 0o755), os.Symlink(dir, filepath.Join(disk, "data"))); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := OpenLog(root.OpenFile, "data/"+logName, "v1"); err == nil {
		t.Error("a link out of the node's disk was followed")
	}
}
