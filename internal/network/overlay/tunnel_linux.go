package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	tunFile = "/dev/net/tun"
	// largest is more than any packet has.
	largest = 1 << 16
	// socketBuffer takes what comes while we are not scheduled.
	socketBuffer = 4 << 20
)

// tunnel is the udp backend at work: what the kernel sends out of our interface goes to the node that has its destination, as it is, in a UDP packet;
// what comes from other nodes goes in. The interface stays when we end, with its addresses and routes, and takes nothing until we are back.
type tunnel struct {
	tun    *os.File
	conn   *net.UDPConn
	source netip.AddrPort
	table  atomic.Pointer[table]
	counts tunnelCounts
	broken atomic.Bool // the interface or the socket is gone
	wg     sync.WaitGroup
}

// table is where packets go. It is never changed, only replaced.
type table struct {
	bySize [2][]int // prefix lengths that there are, of each family
	nodes  map[netip.Prefix]netip.Addr
	known  map[netip.Addr]bool // nodes that there are: nobody else's packets are taken
}

func openTunnel(source netip.AddrPort, counts tunnelCounts) (*tunnel, error) {
	tun, err := openTUN()
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(source))
	if err != nil {
		tun.Close()
		return nil, fmt.Errorf("the overlay cannot listen: %w", err)
	}
	t := &tunnel{tun: tun, conn: conn, source: source, counts: counts}
	t.table.Store(&table{})
	// Buffers are as large as they may be; a path that carries less than our link has its routers cut packets, as the kernel's VXLAN does.
	_ = conn.SetReadBuffer(socketBuffer)
	_ = conn.SetWriteBuffer(socketBuffer)
	if err := allowFragments(conn, source.Addr().Is6()); err != nil {
		tun.Close()
		conn.Close()
		return nil, err
	}
	t.wg.Go(t.send)
	t.wg.Go(t.receive)
	return t, nil
}

func allowFragments(conn *net.UDPConn, v6 bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if v6 {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT)
		} else {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
		}
	})
	return errors.Join(err, failed)
}

// openTUN takes hold of our interface, and makes it if need be. It is ready before Go's poller hears of it: until then it would be told of an error.
func openTUN() (*os.File, error) {
	if _, err := os.Stat(tunFile); errors.Is(err, fs.ErrNotExist) {
		err := errors.Join(os.MkdirAll("/dev/net", 0o755), unix.Mknod(tunFile, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("the overlay backend udp needs %s: %w", tunFile, err)
		}
	}
	fd, err := unix.Open(tunFile, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the overlay backend udp needs %s: %w", tunFile, err)
	}
	request, err := unix.NewIfreq(tunDevice)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("making %s: %w", tunDevice, err)
	}
	return os.NewFile(uintptr(fd), tunFile), nil
}

// close stops the work and waits for its end.
func (t *tunnel) close() {
	if t == nil {
		return
	}
	t.tun.Close()
	t.conn.Close()
	t.wg.Wait()
}

// reaches says which node has which range from now on.
func (t *tunnel) reaches(nodes map[netip.Prefix]netip.Addr) {
	if t == nil {
		return
	}
	next := &table{nodes: nodes, known: map[netip.Addr]bool{}}
	var sizes holders
	for r, at := range nodes {
		sizes.add(r, nil)
		next.known[at] = true
	}
	next.bySize = sizes.sizes
	t.table.Store(next)
}

// node is where a destination is.
func (t *table) node(to netip.Addr) (netip.Addr, bool) {
	for _, bits := range t.bySize[family(netip.PrefixFrom(to, 0))] {
		if at, ok := t.nodes[netip.PrefixFrom(to, bits).Masked()]; ok {
			return at, true
		}
	}
	return netip.Addr{}, false
}

func (t *tunnel) send() {
	buffer := make([]byte, largest)
	for {
		n, err := t.tun.Read(buffer)
		if err != nil {
			t.broken.Store(true)
			return
		}
		at, ok := t.table.Load().node(destination(buffer[:n]))
		if !ok {
			t.counts.unknown.Inc()
			continue
		}
		if _, err := t.conn.WriteToUDPAddrPort(buffer[:n], netip.AddrPortFrom(at, t.source.Port())); errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			t.counts.unsent.Inc() // as on any link, packets may be lost: the network is down, say
			continue
		}
		t.counts.sent.Inc()
	}
}

func (t *tunnel) receive() {
	buffer := make([]byte, largest)
	for {
		n, from, err := t.conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // a packet of ours was refused; that is said here
		}
		if !t.table.Load().known[from.Addr().Unmap()] {
			t.counts.unknown.Inc()
			continue
		}
		if _, err := t.tun.Write(buffer[:n]); errors.Is(err, unix.EBADFD) || errors.Is(err, os.ErrClosed) {
			t.broken.Store(true)
			return
		} else if err != nil {
			t.counts.unsent.Inc() // not an IP packet, or the interface is down
			continue
		}
		t.counts.received.Inc()
	}
}

// destination is that of an IP packet; no address if it is none.
func destination(packet []byte) netip.Addr {
	switch {
	case len(packet) >= ipv4Header && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[16:20]))
	case len(packet) >= ipv6Header && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[24:40]))
	}
	return netip.Addr{}
}

// ensureTUN sees to it that the tunnel works, and returns its interface.
func (k *kernel) ensureTUN(u underlay) (netlink.Link, error) {
	source := netip.AddrPortFrom(u.source(), uint16(k.udpPort))
	link, err := k.find(tunDevice)
	if err != nil {
		return nil, err
	}
	if k.tunnel != nil && (link == nil || link.Attrs().Index != k.device || k.tunnel.broken.Load() || k.tunnel.source != source) {
		k.tunnel.close()
		k.tunnel = nil
	}
	if link != nil && link.Type() != "tuntap" {
		if err := removeDevice(k.Handle, tunDevice); err != nil {
			return nil, err
		}
	}
	if k.tunnel == nil {
		if k.tunnel, err = openTunnel(source, k.counts); err != nil {
			return nil, err
		}
	}
	return k.LinkByName(tunDevice)
}
