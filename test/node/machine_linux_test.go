package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// traces is what containers leave on a machine when they are not cleaned up after, each as a line.
func traces(t *testing.T, dirs ...string) []string {
	t.Helper()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	ours := func(path string) bool {
		return slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(path, d) }) || strings.HasPrefix(path, "/run/skiff/")
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	spaces := map[string]bool{}
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" {
			continue
		}
		exe, _ := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		root, _ := os.Readlink(filepath.Join("/proc", e.Name(), "root"))
		if ours(exe) || ours(root) {
			add("process %s of %s", e.Name(), exe)
		}
		for _, kind := range []string{"net", "ipc", "pid", "mnt", "uts"} {
			if ns, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns", kind)); err == nil {
				spaces[ns] = true
			}
		}
	}
	for ns := range spaces {
		add("namespace %s", ns)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		add("mount %s", strings.Fields(line)[4])
	}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		add("link %s", l.Attrs().Name)
	}
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		add("nftables table %s", table.Name)
	}
	for _, root := range []string{"/sys/fs/cgroup", "/run/skiff", "/run/netns", "/run/containerd", "/var/lib/cni", "/opt/containerd", "/etc/cni"} {
		filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				add("directory %s", path)
			}
			return nil
		})
	}
	slices.Sort(out)
	return out
}

// leavesNothing fails the test if it leaves more on the machine than there was.
func leavesNothing(t *testing.T, dirs ...string) {
	t.Helper()
	before := traces(t, dirs...)
	t.Cleanup(func() {
		var left []string
		for range 100 { // the kernel takes namespaces down in its own time
			left = slices.DeleteFunc(traces(t, dirs...), func(line string) bool {
				_, was := slices.BinarySearch(before, line)
				return was
			})
			if len(left) == 0 {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("left on the machine:\n%s", strings.Join(left, "\n"))
	})
}
