package node

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"skiff/test/alone"
)

// The node runs on a machine of its own, as far as the kernel makes one: no other test is in its way, and none is in others'.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	alone.Main(m)
}

// parallel is how many cases run at once: most of them wait most of the time.
const parallel = "8"

// machineIP is the machine's address in a network where there is nobody else.
const machineIP = "192.0.2.10"

// connect gives the machine an interface with a default route, as machines have.
func connect(t *testing.T) {
	t.Helper()
	if _, err := netlink.LinkByName("uplink"); err == nil {
		return
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "outside"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"outside", "uplink"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
		if name == "outside" {
			continue
		}
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(machineIP), Mask: net.CIDRMask(24, 32)}}); err != nil {
			t.Fatal(err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP("192.0.2.1")}); err != nil {
			t.Fatal(err)
		}
	}
}

// archive is an image that make images built.
func archive(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "build", "images", name+".tar")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v\nmake images builds it", err)
	}
	return path
}

// get is what a server answers, nothing if there is none.
func get(url string) string {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return string(body)
}

// cgroupOf is where a cluster has its control groups, in every hierarchy.
func cgroupOf(dataDir string) string {
	sum := sha256.Sum256([]byte(dataDir))
	return "/skiff/" + hex.EncodeToString(sum[:4])
}

// traces is what a cluster leaves on a machine when it is not cleaned up after, each as a line. All but control groups is the tests' own: see
// alone.
func traces(t *testing.T, dataDir string) []string {
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
		if r.Dst == nil || !r.Dst.IP.IsLinkLocalUnicast() { // those come by themselves, in their own time
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
	for _, root := range []string{"/sys/fs/cgroup", "/run", "/var/lib/cni", "/etc/cni", "/opt"} {
		filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if err == nil && (root != "/sys/fs/cgroup" || e.IsDir() && strings.Contains(path, cgroupOf(dataDir))) {
				add("file %s", path)
			}
			return nil
		})
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// leavesNothing fails the test if it leaves more on the machine than there was.
func leavesNothing(t *testing.T, dataDir string) (before []string) {
	t.Helper()
	before = traces(t, dataDir)
	t.Cleanup(func() { nothingLeft(t, "the test", dataDir, before) })
	return before
}

// nothingLeft compares the machine with what it was before there was a cluster.
func nothingLeft(t *testing.T, what, dataDir string, before []string) {
	t.Helper()
	var left []string
	for range 100 { // the kernel takes namespaces down in its own time
		left = slices.DeleteFunc(traces(t, dataDir), func(line string) bool { _, was := slices.BinarySearch(before, line); return was })
		if len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%s leaves:\n%s", what, strings.Join(left, "\n"))
}
