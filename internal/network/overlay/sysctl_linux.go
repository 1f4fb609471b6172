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

// These are files of the network namespace of the thread that opens them. Interfaces have dots in their names: no need to write them otherwise here.
const sysctls = "/proc/sys/net/"

// forwarding has the node pass packets on, for the families of some ranges. A node that passes on IPv6 packets no longer heeds routers'
// advertisements, and would lose its own way out with them, unless told to.
func (k *kernel) forwarding(u underlay, ranges []netip.Prefix) error {
	for _, r := range ranges {
		file := "ipv4/ip_forward"
		if r.Addr().Is6() {
			file = "ipv6/conf/all/forwarding"
			if err := k.heedRouters(u); err != nil {
				return err
			}
		}
		if err := setSysctl(file, "1"); err != nil {
			return fmt.Errorf("pods need the node to forward packets: %w", err)
		}
	}
	return nil
}

func (k *kernel) heedRouters(u underlay) error {
	if u.ipv6 == nil {
		return nil
	}
	link, err := k.LinkByIndex(u.ipv6.link)
	if err != nil {
		return gone(err)
	}
	file := "ipv6/conf/" + link.Attrs().Name + "/accept_ra"
	if now, err := sysctl(file); err != nil || now != "1" {
		return err
	}
	return setSysctl(file, "2")
}

// deviceSysctls are those of our own interface.
func (k *kernel) deviceSysctls(name string, v6 bool) error {
	// While nodes come and go, packets may come in by another way than answers would leave: no reason to drop them.
	for _, of := range []string{"all", name} {
		if now, err := sysctl("ipv4/conf/" + of + "/rp_filter"); err == nil && now == "1" {
			if err := setSysctl("ipv4/conf/"+name+"/rp_filter", "2"); err != nil {
				return err
			}
		}
	}
	if v6 {
		if err := setSysctl("ipv6/conf/"+name+"/disable_ipv6", "0"); err != nil {
			return fmt.Errorf("pods have IPv6 addresses, and this node does not: %w", err)
		}
	}
	// It needs no address of its own making, nor the traffic that comes with one. Where there is no IPv6 there is no such file.
	if err := setSysctl("ipv6/conf/"+name+"/addr_gen_mode", "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func sysctl(file string) (string, error) {
	data, err := os.ReadFile(sysctls + file)
	return strings.TrimSpace(string(data)), err
}

// setSysctl writes only what is different: where it is right already, it may be that nobody is allowed to.
func setSysctl(file, value string) error {
	if now, err := sysctl(file); err == nil && now == value {
		return nil
	}
	if err := os.WriteFile(sysctls+file, []byte(value), 0o644); err != nil {
		return fmt.Errorf("sysctl net/%s: %w", file, err)
	}
	return nil
}

// Clean removes every trace of the overlay from the network of the calling thread: our interfaces with all that is on them, our routes and our
// rules. Forwarding stays on: others may have come to rely on it.
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
		if err := gone(h.RouteDel(&r)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("removing the route %v: %w", r, err))
		}
	}
	return failed
}
