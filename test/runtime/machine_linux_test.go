package runtime

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

// traces is what containers leave on a machine when they are not cleaned up after, each as a line. The machine is the tests' own (see
// alone) but for cgroups, of which those are looked at that have a name in their path.
func traces(t *testing.T, cgroups []string) []string {
	t.Helper()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
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
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && exe != self {
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
			if err == nil && e.IsDir() && (root != "/sys/fs/cgroup" || slices.ContainsFunc(cgroups, func(c string) bool { return strings.Contains(path, c) })) {
				add("directory %s", path)
			}
			return nil
		})
	}
	slices.Sort(out)
	return out
}

// leavesNothing fails the test if it leaves more on the machine than there was. cgroups are the names of its own.
func leavesNothing(t *testing.T, cgroups func() []string) {
	t.Helper()
	before := traces(t, nil)
	t.Cleanup(func() {
		var left []string
		for range 100 { // the kernel takes namespaces down in its own time
			left = slices.DeleteFunc(traces(t, cgroups()), func(line string) bool {
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
