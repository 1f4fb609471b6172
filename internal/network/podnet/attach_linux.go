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

// kernelTime is how long the kernel may take for one thing.
const kernelTime = 10 * time.Second

// links makes and removes the links between pods and this node. What it makes is what CNI's ptp makes.
type links struct {
	home *os.File // the node's own namespace
}

func openLinks() (*links, error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	return &links{home}, err
}

func (l *links) close() { l.home.Close() }

// speakIn opens netlink in a namespace. Each call has its own: on one that all share, everybody would wait for the kernel to be done with a link that
// is removed, which takes it 30 ms.
func speakIn(namespace *os.File) (*netlink.Handle, error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(namespace.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := h.SetSocketTimeout(kernelTime); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// attachment is a pod's link.
type attachment struct {
	owner
	namespace string // a file
	mtu       int
	ranges    []netip.Prefix
	addresses []netip.Addr // one of each range
	// The rest is known once it is made.
	outer                 string // the node's end
	hardware, outHardware net.HardwareAddr
}

// outerName is the name of the node's end. It follows from the pod's, so that it can be found when the pod's namespace is gone, and is as long as names can be.
func (o owner) outerName() string {
	sum := sha256.Sum256([]byte(o.sandbox + "/" + o.link))
	return "veth" + hex.EncodeToString(sum[:])[:11]
}

// attach makes a link and all that belongs to it, or nothing.
func (l *links) attach(a *attachment) (err error) {
	namespace, pod, err := l.enter(a.namespace)
	if err != nil {
		return err
	}
	defer namespace.Close()
	defer pod.Close()
	node, err := speakIn(l.home)
	if err != nil {
		return err
	}
	defer node.Close()
	if err := forward(a.ranges); err != nil {
		return err
	}
	a.outer, a.hardware, a.outHardware = a.outerName(), newHardware(), newHardware()
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU, attributes.HardwareAddr, attributes.Flags = a.outer, a.mtu, a.outHardware, net.FlagUp
	outer := netlink.NewVeth(attributes)
	outer.PeerName, outer.PeerHardwareAddr, outer.PeerNamespace = a.link, a.hardware, netlink.NsFd(namespace.Fd())
	if err = node.LinkAdd(outer); errors.Is(err, unix.EEXIST) {
		// What an attempt that was cut short has left is made anew.
		if removed, e := remove(node, a.outer); removed || e != nil {
			err = errors.Join(e, node.LinkAdd(outer))
		}
	}
	if err != nil {
		return fmt.Errorf("links %s on the node and %s in the pod: %w", a.outer, a.link, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreMissing(node.LinkDel(outer)))
		}
	}()
	// What routes there are is not for the pod to say. Without IPv6 there is no such setting.
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

// enter opens a pod's namespace, and netlink in it.
func (l *links) enter(path string) (*os.File, *netlink.Handle, error) {
	namespace, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	if err = l.mayEnter(namespace); err == nil {
		var pod *netlink.Handle
		if pod, err = speakIn(namespace); err == nil {
			return namespace, pod, nil
		}
	}
	namespace.Close()
	return nil, nil, fmt.Errorf("network namespace %s: %w", path, err)
}

// errNoNamespace is that a file is not what a namespace is found by, or not any more.
var errNoNamespace = errors.New("there is no network namespace")

// mayEnter says why a file is not a pod's namespace.
func (l *links) mayEnter(namespace *os.File) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(namespace.Fd()), &fs); err != nil {
		return err
	}
	if fs.Type != unix.NSFS_MAGIC {
		return errNoNamespace
	}
	its, err := namespace.Stat()
	if err != nil {
		return err
	}
	own, err := l.home.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(its, own) {
		return errors.New("it is the node's own")
	}
	return nil
}

// enableIPv6 lets a pod that gets an IPv6 address have one, and keep it while its link is down. Only files say so, and which a thread sees depends on
// where it is.
func (l *links) enableIPv6(namespace *os.File, a *attachment) error {
	for _, address := range a.addresses {
		if address.Is6() {
			return l.within(namespace, func() error {
				return errors.Join(writeSysctl("net/ipv6/conf/lo/disable_ipv6", "0"), writeSysctl("net/ipv6/conf/"+a.link+"/disable_ipv6", "0"),
					writeSysctl("net/ipv6/conf/"+a.link+"/keep_addr_on_down", "1"))
			})
		}
	}
	return nil
}

// within does something in another network namespace.
func (l *links) within(namespace *os.File, do func() error) error {
	runtime.LockOSThread()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err := do()
	if back := unix.Setns(int(l.home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// configurePod gives the pod's end its addresses and routes. There is no route to the whole range by the link itself, as there is nobody behind it but
// the node: that is the way to everybody.
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
		// Nobody else has the address, so nobody is asked first, which takes a second.
		has := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, r.Bits())), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE}
		if err := pod.AddrAdd(link, has); err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		everything := netip.PrefixFrom(gw, 0).Masked()
		for _, route := range []*netlink.Route{
			{LinkIndex: index, Dst: ipNet(one(gw)), Scope: netlink.SCOPE_LINK, Src: address.AsSlice()},
			{LinkIndex: index, Dst: ipNet(r.Masked()), Gw: gw.AsSlice(), Src: address.AsSlice()},
			{LinkIndex: index, Dst: ipNet(everything), Gw: gw.AsSlice()},
		} {
			if err := pod.RouteReplace(route); err != nil {
				return fmt.Errorf("route to %s: %w", route.Dst, err)
			}
		}
	}
	return nil
}

// configureNode gives the node's end the address that the pod sends everything to, and the node a route to the pod.
func configureNode(node *netlink.Handle, outer netlink.Link, a *attachment) error {
	for i, address := range a.addresses {
		gw := gateway(a.ranges[i])
		if err := node.AddrAdd(outer, &netlink.Addr{IPNet: ipNet(one(gw)), Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("address %s of the node's link %s: %w", gw, a.outer, err)
		}
		// It takes the place of one by a link that was left, if there is such.
		if err := node.RouteReplace(&netlink.Route{LinkIndex: outer.Attrs().Index, Dst: ipNet(one(address)), Scope: netlink.SCOPE_HOST}); err != nil {
			return fmt.Errorf("the node's route to %s: %w", address, err)
		}
	}
	return nil
}

// detach removes a link, with all that belongs to it, if it is there. Of one that was made by ptp only the pod's end is known.
func (l *links) detach(o owner, namespace string) error {
	node, err := speakIn(l.home)
	if err != nil {
		return err
	}
	defer node.Close()
	if removed, err := remove(node, o.outerName()); removed || err != nil || namespace == "" {
		return err
	}
	file, pod, err := l.enter(namespace)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, errNoNamespace) {
		return nil // its links ended with it
	}
	if err != nil {
		return err
	}
	defer file.Close()
	defer pod.Close()
	_, err = remove(pod, o.link)
	return err
}

// remove removes a link, and with it its other end, and reports whether there was one.
func remove(in *netlink.Handle, name string) (bool, error) {
	link, err := in.LinkByName(name)
	if err != nil {
		return false, ignoreMissing(err)
	}
	return true, ignoreMissing(in.LinkDel(link))
}

// newHardware is an address of nobody's make.
func newHardware() net.HardwareAddr {
	a := make(net.HardwareAddr, 6)
	rand.Read(a) // does not fail
	a[0] = a[0]&^1 | 2
	return a
}

// one is the range of one address.
func one(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
