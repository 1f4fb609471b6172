package etcd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tracedChild runs the child of TestPowerLoss with a data directory and returns the writes that it printed as acknowledged.
func tracedChild(t *testing.T, child *exec.Cmd, dir string) (acked acknowledged, out string, err error) {
	t.Helper()
	child.Env = append(os.Environ(), tracedDirVariable+"="+dir)
	var output bytes.Buffer
	child.Stdout, child.Stderr = &output, &output
	err = child.Run()
	acked = acknowledged{}
	for line := range strings.Lines(output.String()) {
		acked.add(line)
	}
	return acked, output.String(), err
}

// TestWriteFails has the n-th write of each thread of a process fail because the disk is full, for many n, and likewise its syncs. The
// process goes on or ends and says why; the next one finds every write that was acknowledged.
func TestWriteFails(t *testing.T) {
	ended, wentOn := 0, 0
	for _, fault := range []struct {
		calls, errno, says string
		last               int
	}{
		{"write,pwrite64", "ENOSPC", "no space left on device", 14},
		{"fallocate,ftruncate", "ENOSPC", "no space left on device", 4},
		{"fsync,fdatasync", "EIO", "input/output error", 8},
	} {
		for n := 1; n <= fault.last; n++ {
			what := fmt.Sprintf("%s fails the %d. time with %s", fault.calls, n, fault.errno)
			dir := filepath.Join(t.TempDir(), "data")
			child := straceCommand(t, []string{"-f", "-o", "/dev/null", "-e", "trace=" + fault.calls, "-e", fmt.Sprintf("inject=%s:error=%s:when=%d", fault.calls, fault.errno, n)},
				[]string{os.Args[0], "-test.run=^TestTracedChild$"})
			acked, out, err := tracedChild(t, child, dir)
			if err != nil {
				ended++
				if !strings.Contains(out, fault.says) {
					t.Errorf("%s: the process ended and did not say why: %v\n%s", what, err, out)
				}
			} else {
				wentOn++
			}
			for _, lost := range acked.missing(t, dir) {
				t.Errorf("%s: %s\n%s", what, lost, out)
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d processes ended, %d went on", ended, wentOn)
	if ended == 0 {
		t.Error("no write failed")
	}
}

const diskFullVariable = "SKIFF_STORE_DISK_FULL"

// TestDiskFull fills a disk of a few MiB before a store is opened for the first time, and while one is written to, leaving more
// or less room. Once there is room again the store opens, with every write that was acknowledged.
func TestDiskFull(t *testing.T) {
	if os.Getenv(diskFullVariable) != "" {
		diskFull(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("mounts a file system: needs root")
	}
	// The mount is in a namespace that ends with the process.
	child := exec.Command(os.Args[0], "-test.run=^TestDiskFull$", "-test.v")
	child.Env = append(os.Environ(), diskFullVariable+"="+t.TempDir())
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}

func diskFull(t *testing.T) {
	disk := os.Getenv(diskFullVariable)
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=256m"); err != nil {
		t.Fatal(err)
	}
	remount := func(bytes int64) error {
		return unix.Mount("", disk, "", unix.MS_REMOUNT, fmt.Sprintf("size=%d", bytes))
	}
	resize := func(bytes int64) {
		t.Helper()
		if err := remount(bytes); err != nil {
			t.Fatal(err)
		}
	}
	used := func() int64 {
		var s unix.Statfs_t
		if err := unix.Statfs(disk, &s); err != nil {
			t.Fatal(err)
		}
		return int64(s.Blocks-s.Bfree) * s.Bsize
	}
	dir := filepath.Join(disk, "data")
	const page, much = 4096, 256 << 20
	opened := 0
	for _, left := range []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 100, 2040, 2050, 2060, 2070, 4090, 4110, 4130, 6150} {
		resize(left * page) // size=0 would be no limit
		acked, out, err := tracedChild(t, exec.Command(os.Args[0], "-test.run=^TestTracedChild$"), dir)
		if strings.Contains(out, "opened\n") {
			opened++
		}
		if err != nil && !strings.Contains(out, "no space left on device") {
			t.Errorf("first start with %d pages left: the process ended and did not say why: %v\n%s", left, err, out)
		}
		resize(much)
		for _, problem := range acked.missing(t, dir) {
			t.Errorf("started with %d pages left, and again with room: %s", left, problem)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d first starts succeeded", opened)

	for _, left := range []int64{0, 1, 3, 10, 100, 1000, 2100, 4000, 4200} {
		resize(much)
		child := exec.Command(os.Args[0], "-test.run=^TestTracedChild$")
		filled := make(chan struct{})
		go func() {
			defer close(filled)
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if files, _ := filepath.Glob(filepath.Join(dir, "member", "log", "*.wal")); len(files) > 0 && used() > 20<<20 {
					break
				}
			}
			for remount(used()+left*page+page) != nil { // more is used by now
			}
		}()
		acked, out, err := tracedChild(t, child, dir)
		<-filled
		refused := strings.Count(out, "failed to put")
		t.Logf("%d pages left: %d keys acknowledged, %d writes refused, %v", left, len(acked), refused, err)
		if err != nil && !strings.Contains(out, "no space left on device") {
			t.Errorf("%d pages left: the process ended and did not say why: %v\n%s", left, err, out)
		}
		resize(much)
		for _, problem := range acked.missing(t, dir) {
			t.Errorf("%d pages left: %s", left, problem)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}
