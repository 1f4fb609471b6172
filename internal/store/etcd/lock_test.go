package etcd

import (
	"syscall"
	"testing"
)

// A directory that was released can be locked again while a child that is being started has the lock's file.
func TestReleaseWhileForking(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	child, err := syscall.Dup(int(lock.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	if _, err := lockDir(dir); err == nil {
		t.Fatal("the directory is locked twice")
	}
	if err := lock.release(); err != nil {
		t.Fatal(err)
	}
	again, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.release(); err != nil {
		t.Error(err)
	}
}
