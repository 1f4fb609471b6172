package node

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"skiff/test/alone"
	"skiff/test/traces"
)

// The node runs on a machine of its own, as far as the kernel makes one: no other test is in its way, and none is in others'.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	alone.Main(m)
}

// parallel is how many cases run in parallel: most of them wait most of the time.
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

// archive returns an image that make images built.
func archive(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "build", "images", name+".tar")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v\nmake images builds it", err)
	}
	return path
}

// get returns what a server answers, nothing if there is none.
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

// cgroupOf returns where a cluster has its cgroups, in every hierarchy.
func cgroupOf(dataDir string) string {
	sum := sha256.Sum256([]byte(dataDir))
	return "/skiff/" + hex.EncodeToString(sum[:4])
}

// leavesNothing fails the test if it leaves anything behind on the machine.
func leavesNothing(t *testing.T, dataDir string) (before []string) {
	t.Helper()
	before = traces.Of(t, cgroupOf(dataDir))
	t.Cleanup(func() { nothingLeft(t, "the test", dataDir, before) })
	return before
}

// nothingLeft compares the machine with what it was before there was a cluster.
func nothingLeft(t *testing.T, what, dataDir string, before []string) {
	t.Helper()
	traces.NothingLeft(t, what, before, cgroupOf(dataDir))
	if left := loopDevices(dataDir); len(left) > 0 {
		t.Errorf("%s has left loop devices: of %v", what, left)
	}
}
