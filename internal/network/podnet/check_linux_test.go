package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestCheck: CHECK reports what is missing.
func TestCheck(t *testing.T) {
	node, pod := newNamespace(t, "node"), newNamespace(t, "pod")
	a := newTestServer(t, node)
	made := a.add(t, "pod", pod, dual)
	check := func(made *result) string {
		_, err := a.call("CHECK", "pod", pod, pluginConfig{PrevResult: made})
		return fmt.Sprint(err)
	}
	if got := check(made); got != "<nil>" {
		t.Fatalf("CHECK of what was just made: %s", got)
	}
	other := *made
	other.Interfaces = slices.Clone(made.Interfaces)
	other.Interfaces[1].Mac = "02:00:00:00:00:01"
	for want, made := range map[string]*result{"prevResult is missing": nil, "is another one": &other} {
		if got := check(made); !strings.Contains(got, want) {
			t.Errorf("%s, not that %s", got, want)
		}
	}
	breaks := func(p *namespace, want string, do func(link netlink.Link) error) {
		t.Helper()
		p.Must(t, func() error {
			name := "eth0"
			if p == node {
				name = made.Interfaces[0].Name
			}
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return do(link)
		})
		if got := check(made); !strings.Contains(got, want) {
			t.Errorf("%s, not that %s", got, want)
		}
		made = a.add(t, "pod", pod, dual) // attach again
	}
	breaks(pod, "does not have the address 10.42.0.2/24", func(l netlink.Link) error {
		address, err := netlink.ParseAddr("10.42.0.2/24")
		return errors.Join(err, netlink.AddrDel(l, address))
	})
	breaks(pod, "no route to ::/0", func(l netlink.Link) error {
		return netlink.RouteDel(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("::/0")), Gw: netip.MustParseAddr("fd42::1").AsSlice()})
	})
	breaks(node, "on the node: there is no route to 10.42.0.2/32", func(l netlink.Link) error {
		return netlink.RouteDel(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("10.42.0.2/32")), Scope: netlink.SCOPE_HOST})
	})
	breaks(node, "is down", netlink.LinkSetDown)
	breaks(node, "link", netlink.LinkDel)
	if err := errors.Join(os.Remove(filepath.Join(a.addresses.dir, "10.42.0.2")), a.addresses.load()); err != nil {
		t.Fatal(err)
	}
	if got := check(made); !strings.Contains(got, "10.42.0.2 is not pod's address") {
		t.Errorf("%s, though the address may be given to another", got)
	}
	if _, err := a.call("DEL", "pod", pod, pluginConfig{}); err != nil {
		t.Error(err)
	}
	a.expectNothing(t)
}
