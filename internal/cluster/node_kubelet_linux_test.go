package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKubeletRoot: the kubelet's root directory is the standard path where that is bound to the one in the data directory, and nowhere else.
func TestKubeletRoot(t *testing.T) {
	dir := t.TempDir()
	own, standard, link := filepath.Join(dir, "data", "kubelet"), filepath.Join(dir, "var"), filepath.Join(dir, "link")
	check := func(where, path, want string) {
		t.Helper()
		if got := kubeletRoot(own, path); got != want {
			t.Errorf("%s: the kubelet's root directory is %s, not %s", where, got, want)
		}
	}
	check("with neither", standard, own)
	for _, d := range []string{own, standard} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	check("with another directory", standard, own)
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	check("with a link", link, own)
	if os.Geteuid() != 0 {
		t.Skip("only root may bind directories")
	}
	if err := unix.Mount(own, standard, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(standard, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	check("with a bound directory", standard, standard)
}
