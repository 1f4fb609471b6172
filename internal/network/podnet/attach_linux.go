package podnet

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netlinkTimeout bounds every netlink request.
const netlinkTimeout = 10 * time.Second

// links creates and removes the veth links between pods and this node. They are the same as those that CNI's ptp creates.
type links struct {
	nodeNamespace *os.File
}

func openLinks() (*links, error) {
	namespace, err := os.Open("/proc/thread-self/ns/net")
	return &links{namespace}, err
}

func (l *links) close() { l.nodeNamespace.Close() }

// openNetlink opens a netlink socket in a namespace. Each CNI call has its own: on a shared one every call would wait while the kernel removes a
// link, which takes 30 ms.
func openNetlink(namespace *os.File) (*netlink.Handle, error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(namespace.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := h.SetSocketTimeout(netlinkTimeout); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// attachment is the veth link of a pod.
type attachment struct {
	owner
	namespace string // the path of the pod's network namespace
	mtu       int
	ranges    []netip.Prefix
	addresses []netip.Addr // one of each range
	// attach sets the following.
	outer                   string // the name of the node's end
	hardware, outerHardware net.HardwareAddr
}

// outerName returns the name of the node's end, as long as interface names can be. It is derived from the owner, so that the link is found
// when the pod's namespace no longer exists.
func (o owner) outerName() string {
	sum := sha256.Sum256([]byte(o.sandbox + "/" + o.link))
	return "veth" + hex.EncodeToString(sum[:])[:11]
}

// attach creates a link with its addresses and routes. If it fails it leaves nothing behind.
func (l *links) attach(a *attachment) (err error) {
	namespace, pod, err := l.enter(a.namespace)
	if err != nil {
		return err
	}
	defer namespace.Close()
	defer pod.Close()
	node, err := openNetlink(l.nodeNamespace)
	if err != nil {
		return err
	}
	defer node.Close()
	if err := forward(a.ranges); err != nil {
		return err
	}
	a.outer, a.hardware, a.outerHardware = a.outerName(), randomHardwareAddr(), randomHardwareAddr()
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU, attributes.HardwareAddr, attributes.Flags = a.outer, a.mtu, a.outerHardware, net.FlagUp
	outer := netlink.NewVeth(attributes)
	outer.PeerName, outer.PeerHardwareAddr, outer.PeerNamespace = a.link, a.hardware, netlink.NsFd(namespace.Fd())
	if err = node.LinkAdd(outer); errors.Is(err, unix.EEXIST) {
		// The link of an attempt that was cut short is created again.
		if removed, e := remove(node, a.outer); removed || e != nil {
			err = errors.Join(e, node.LinkAdd(outer))
		}
	}
	if err != nil {
		return fmt.Errorf("failed to create the link %s on the node and %s in the pod: %w", a.outer, a.link, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreMissing(node.LinkDel(outer)))
		}
	}()
	// A pod must not change the node's routes by router advertisements. The sysctl does not exist where IPv6 is disabled.
	if err := ignoreMissing(writeSysctl("net/ipv6/conf/"+a.outer+"/accept_ra", "0")); err != nil {
		return err
	}
	if err := l.enableIPv6(namespace, a); err != nil {
		return err
	}
	if err := configurePod(pod, a); err != nil {
		return err
	}
	return configureNode(node, outer, a)
}

// enter opens a pod's network namespace and a netlink socket in it.
func (l *links) enter(path string) (*os.File, *netlink.Handle, error) {
	namespace, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	if err = l.checkNamespace(namespace); err == nil {
		var pod *netlink.Handle
		if pod, err = openNetlink(namespace); err == nil {
			return namespace, pod, nil
		}
	}
	namespace.Close()
	return nil, nil, fmt.Errorf("network namespace %s: %w", path, err)
}

// errNoNamespace is returned for a file that is not, or no longer, a network namespace.
var errNoNamespace = errors.New("there is no network namespace")

// checkNamespace returns an error if a file is not a network namespace, or is the node's.
func (l *links) checkNamespace(namespace *os.File) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(namespace.Fd()), &fs); err != nil {
		return err
	}
	if fs.Type != unix.NSFS_MAGIC {
		return errNoNamespace
	}
	podInfo, err := namespace.Stat()
	if err != nil {
		return err
	}
	nodeInfo, err := l.nodeNamespace.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(podInfo, nodeInfo) {
		return errors.New("it is the node's own")
	}
	return nil
}

// enableIPv6 enables IPv6 in the namespace of a pod that gets an IPv6 address, and makes the address stay while the link is down. These are
// sysctl files, which a thread sees for the namespace that it is in.
func (l *links) enableIPv6(namespace *os.File, a *attachment) error {
	for _, address := range a.addresses {
		if address.Is6() {
			return l.runIn(namespace, func() error {
				return errors.Join(writeSysctl("net/ipv6/conf/lo/disable_ipv6", "0"), writeSysctl("net/ipv6/conf/"+a.link+"/disable_ipv6", "0"),
					writeSysctl("net/ipv6/conf/"+a.link+"/keep_addr_on_down", "1"))
			})
		}
	}
	return nil
}

// runIn calls do in another network namespace.
func (l *links) runIn(namespace *os.File, do func() error) error {
	runtime.LockOSThread()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err := do()
	if back := unix.Setns(int(l.nodeNamespace.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked, so it ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// configurePod sets the addresses and routes of the pod's end. The pod's range is not routed to the link directly but through the gateway,
// because only the node is at the other end.
func configurePod(pod *netlink.Handle, a *attachment) error {
	link, err := pod.LinkByName(a.link)
	if err != nil {
		return err
	}
	if err := pod.LinkSetUp(link); err != nil {
		return err
	}
	index := link.Attrs().Index
	for i, address := range a.addresses {
		r, gw := a.ranges[i], gateway(a.ranges[i])
		// Without duplicate address detection, which takes a second: no other pod has the address.
		podAddr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, r.Bits())), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE}
		if err := pod.AddrAdd(link, podAddr); err != nil {
			return fmt.Errorf("failed to add the pod's address %s: %w", address, err)
		}
		everything := netip.PrefixFrom(gw, 0).Masked()
		for _, route := range []*netlink.Route{
			{LinkIndex: index, Dst: ipNet(hostPrefix(gw)), Scope: netlink.SCOPE_LINK, Src: address.AsSlice()},
			{LinkIndex: index, Dst: ipNet(r.Masked()), Gw: gw.AsSlice(), Src: address.AsSlice()},
			{LinkIndex: index, Dst: ipNet(everything), Gw: gw.AsSlice()},
		} {
			if err := pod.RouteReplace(route); err != nil {
				return fmt.Errorf("failed to set the pod's route to %s: %w", route.Dst, err)
			}
		}
	}
	return nil
}

// configureNode adds the gateway's address to the node's end, and sets the node's route to the pod.
func configureNode(node *netlink.Handle, outer netlink.Link, a *attachment) error {
	for i, address := range a.addresses {
		gw := gateway(a.ranges[i])
		if err := node.AddrAdd(outer, &netlink.Addr{IPNet: ipNet(hostPrefix(gw)), Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("failed to add the address %s to the node's link %s: %w", gw, a.outer, err)
		}
		// The route may exist already, through a link that was left behind.
		if err := node.RouteReplace(&netlink.Route{LinkIndex: outer.Attrs().Index, Dst: ipNet(hostPrefix(address)), Scope: netlink.SCOPE_HOST}); err != nil {
			return fmt.Errorf("failed to set the node's route to %s: %w", address, err)
		}
	}
	return nil
}

// detach removes the link of an owner, if it exists. Only the pod's end has a known name if ptp created the link.
func (l *links) detach(o owner, namespace string) error {
	node, err := openNetlink(l.nodeNamespace)
	if err != nil {
		return err
	}
	defer node.Close()
	if removed, err := remove(node, o.outerName()); removed || err != nil || namespace == "" {
		return err
	}
	file, pod, err := l.enter(namespace)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, errNoNamespace) {
		return nil // the kernel removed the links with the namespace
	}
	if err != nil {
		return err
	}
	defer file.Close()
	defer pod.Close()
	_, err = remove(pod, o.link)
	return err
}

// remove removes a link, and with it its other end, and reports whether it existed.
func remove(in *netlink.Handle, name string) (bool, error) {
	link, err := in.LinkByName(name)
	if err != nil {
		return false, ignoreMissing(err)
	}
	return true, ignoreMissing(in.LinkDel(link))
}

// randomHardwareAddr returns a random, locally administered unicast address.
func randomHardwareAddr() net.HardwareAddr {
	a := make(net.HardwareAddr, 6)
	rand.Read(a) // does not fail
	a[0] = a[0]&^1 | 2
	return a
}

// hostPrefix returns the prefix that contains only one address.
func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
