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
	// maxPacket is the size of the packet buffers: no IP packet is longer.
	maxPacket = 1 << 16
	// socketBuffer holds the packets that arrive while the process is not scheduled.
	socketBuffer = 4 << 20
)

// tunnel is the data path of the udp backend: it sends each packet that the kernel routes to the TUN interface in a UDP packet to the node of
// its destination, and writes the packets of other nodes to the interface. The interface stays when skiff ends, with its addresses and
// routes, and carries no packets until skiff runs again.
type tunnel struct {
	tun    *os.File
	conn   *net.UDPConn
	source netip.AddrPort
	table  atomic.Pointer[table]
	counts tunnelCounts
	failed atomic.Bool // the interface or the socket is unusable: ensureTUN opens a new tunnel
	wg     sync.WaitGroup
}

// table maps destinations to nodes. It is never changed, only replaced.
type table struct {
	prefixLengths [2][]int // the prefix lengths of nodes' keys, of each family
	nodes         map[netip.Prefix]netip.Addr
	sources       map[netip.Addr]bool // the nodes' addresses: packets from any other source are dropped
}

func openTunnel(source netip.AddrPort, counts tunnelCounts) (*tunnel, error) {
	tun, err := openTUN()
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(source))
	if err != nil {
		tun.Close()
		return nil, fmt.Errorf("the overlay failed to listen on its UDP port: %w", err)
	}
	t := &tunnel{tun: tun, conn: conn, source: source, counts: counts}
	t.table.Store(&table{})
	// The buffers are as large as the kernel allows. Fragmentation is allowed on paths with a smaller MTU than the link, as the kernel's VXLAN does.
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

// openTUN opens the TUN interface, and creates it if it does not exist. The file is set up before it is passed to Go's poller, which would see an
// error otherwise.
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
		return nil, fmt.Errorf("failed to create the interface %s: %w", tunDevice, err)
	}
	return os.NewFile(uintptr(fd), tunFile), nil
}

// close stops the tunnel and waits for its goroutines.
func (t *tunnel) close() {
	if t == nil {
		return
	}
	t.tun.Close()
	t.conn.Close()
	t.wg.Wait()
}

// setTable sets which node has which range.
func (t *tunnel) setTable(nodes map[netip.Prefix]netip.Addr) {
	if t == nil {
		return
	}
	next := &table{nodes: nodes, sources: map[netip.Addr]bool{}}
	var lengths holders
	for r, at := range nodes {
		lengths.add(r, nil)
		next.sources[at] = true
	}
	next.prefixLengths = lengths.prefixLengths
	t.table.Store(next)
}

// node returns the address of the node that has a destination, and whether there is one.
func (t *table) node(to netip.Addr) (netip.Addr, bool) {
	for _, bits := range t.prefixLengths[family(netip.PrefixFrom(to, 0))] {
		if at, ok := t.nodes[netip.PrefixFrom(to, bits).Masked()]; ok {
			return at, true
		}
	}
	return netip.Addr{}, false
}

func (t *tunnel) send() {
	buffer := make([]byte, maxPacket)
	for {
		n, err := t.tun.Read(buffer)
		if err != nil {
			t.failed.Store(true)
			return
		}
		at, ok := t.table.Load().node(destination(buffer[:n]))
		if !ok {
			t.counts.unknownNode.Inc()
			continue
		}
		if _, err := t.conn.WriteToUDPAddrPort(buffer[:n], netip.AddrPortFrom(at, t.source.Port())); errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			t.counts.failed.Inc() // packets may be lost as on any link, for example while the network is down
			continue
		}
		t.counts.sent.Inc()
	}
}

func (t *tunnel) receive() {
	buffer := make([]byte, maxPacket)
	for {
		n, from, err := t.conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the ICMP error of a packet sent before
		}
		if !t.table.Load().sources[from.Addr().Unmap()] {
			t.counts.unknownNode.Inc()
			continue
		}
		if _, err := t.tun.Write(buffer[:n]); errors.Is(err, unix.EBADFD) || errors.Is(err, os.ErrClosed) {
			t.failed.Store(true)
			return
		} else if err != nil {
			t.counts.failed.Inc() // not an IP packet, or the interface is down
			continue
		}
		t.counts.received.Inc()
	}
}

// destination returns the destination of an IP packet; the zero address if it is not an IP packet.
func destination(packet []byte) netip.Addr {
	switch {
	case len(packet) >= ipv4Header && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[16:20]))
	case len(packet) >= ipv6Header && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[24:40]))
	}
	return netip.Addr{}
}

// ensureTUN opens the tunnel, or opens it again if it has failed or its source address has changed, and returns its interface.
func (k *kernel) ensureTUN(u underlay) (netlink.Link, error) {
	source := netip.AddrPortFrom(u.source(), uint16(k.udpPort))
	link, err := k.find(tunDevice)
	if err != nil {
		return nil, err
	}
	if k.tunnel != nil && (link == nil || link.Attrs().Index != k.device || k.tunnel.failed.Load() || k.tunnel.source != source) {
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
