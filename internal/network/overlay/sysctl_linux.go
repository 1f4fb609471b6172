package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// sysctls is the directory of the network sysctls; its files are those of the network namespace of the thread that opens them. As paths they may
// contain interface names with dots.
const sysctls = "/proc/sys/net/"

// enableForwarding enables IP forwarding for the families of the ranges. A node that forwards IPv6 ignores router advertisements by default
// and could lose its default route, so accepting them is enabled too.
func (k *kernel) enableForwarding(u underlay, ranges []netip.Prefix) error {
	for _, r := range ranges {
		file := "ipv4/ip_forward"
		if r.Addr().Is6() {
			file = "ipv6/conf/all/forwarding"
			if err := k.acceptRouterAdvertisements(u); err != nil {
				return err
			}
		}
		if err := setSysctl(file, "1"); err != nil {
			return fmt.Errorf("failed to enable forwarding, which pods need: %w", err)
		}
	}
	return nil
}

func (k *kernel) acceptRouterAdvertisements(u underlay) error {
	if u.ipv6 == nil {
		return nil
	}
	link, err := k.LinkByIndex(u.ipv6.link)
	if err != nil {
		return ignoreNotFound(err)
	}
	file := "ipv6/conf/" + link.Attrs().Name + "/accept_ra"
	if now, err := sysctl(file); err != nil || now != "1" {
		return err
	}
	return setSysctl(file, "2")
}

// deviceSysctls sets the sysctls of the overlay's interface.
func (k *kernel) deviceSysctls(name string, v6 bool) error {
	// A loose reverse path filter: while nodes come and go, packets may arrive by another link than answers leave by.
	for _, of := range []string{"all", name} {
		if now, err := sysctl("ipv4/conf/" + of + "/rp_filter"); err == nil && now == "1" {
			if err := setSysctl("ipv4/conf/"+name+"/rp_filter", "2"); err != nil {
				return err
			}
		}
	}
	if v6 {
		if err := setSysctl("ipv6/conf/"+name+"/disable_ipv6", "0"); err != nil {
			return fmt.Errorf("failed to enable IPv6 on %s, which pods with IPv6 addresses need: %w", name, err)
		}
	}
	// The interface needs no link-local address of its own. The file does not exist where IPv6 is disabled.
	if err := setSysctl("ipv6/conf/"+name+"/addr_gen_mode", "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func sysctl(file string) (string, error) {
	data, err := os.ReadFile(sysctls + file)
	return strings.TrimSpace(string(data)), err
}

// setSysctl writes a sysctl only if it differs: in a container it may be right already and read-only.
func setSysctl(file, value string) error {
	if now, err := sysctl(file); err == nil && now == value {
		return nil
	}
	if err := os.WriteFile(sysctls+file, []byte(value), 0o644); err != nil {
		return fmt.Errorf("failed to set sysctl net/%s to %s: %w", file, value, err)
	}
	return nil
}

// Clean removes the overlay from the network namespace of the calling thread: its interfaces with all that is on them, its routes and its
// nftables table. IP forwarding stays enabled: other programs may rely on it by now.
func Clean() error {
	h, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer h.Close()
	failed := errors.Join(removeDevice(h, vxlanDevice), removeDevice(h, tunDevice), removeGuard())
	k := &kernel{Handle: h}
	routes, err := k.ourRoutes()
	failed = errors.Join(failed, err)
	for _, r := range routes {
		if err := ignoreNotFound(h.RouteDel(&r)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("failed to remove the route %v: %w", r, err))
		}
	}
	return failed
}
