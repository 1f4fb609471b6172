package traces

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

// Of returns the state of this machine, a line for each: processes, namespaces, mounts, interfaces, routes, nftables, the files that need not survive a
// reboot, and the cgroups whose path contains one of groups.
func Of(t testing.TB, groups ...string) []string {
	t.Helper()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	spaces := map[string]bool{}
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" {
			continue
		}
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil {
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
	network(t, add)
	wanted := func(path string) bool {
		return slices.ContainsFunc(groups, func(g string) bool { return strings.Contains(path, g) })
	}
	for _, root := range []string{"/sys/fs/cgroup", "/run", "/var/lib/cni", "/etc/cni", "/opt"} {
		filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if err == nil && (root != "/sys/fs/cgroup" || e.IsDir() && wanted(path)) {
				add("file %s", path)
			}
			return nil
		})
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func network(t testing.TB, add func(string, ...any)) {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		add("link %s", l.Attrs().Name)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Dst == nil || !r.Dst.IP.IsLinkLocalUnicast() { // the kernel adds those by itself, asynchronously
			add("route %s", r)
		}
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
}

// NothingLeft fails the test if the state of the machine differs from before.
func NothingLeft(t testing.TB, what string, before []string, groups ...string) {
	t.Helper()
	var left []string
	for range 100 { // the kernel removes namespaces asynchronously
		left = slices.DeleteFunc(Of(t, groups...), func(line string) bool { _, was := slices.BinarySearch(before, line); return was })
		if len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%s leaves:\n%s", what, strings.Join(left, "\n"))
}
