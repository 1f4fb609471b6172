package runtime

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// guide is the configuration that the guide prints.
const guide = `{
    "cniVersion": "0.3.1",
    "name": "bridge",
    "type": "bridge",
    "bridge": "cnio0",
    "isGateway": true,
    "ipMasq": true,
    "ipam": {
        "type": "host-local",
        "ranges": [
          [{"subnet": "${POD_CIDR}"}]
        ],
        "routes": [{"dst": "0.0.0.0/0"}]
    }
}
`

// The guide's configuration works as printed, whatever else is in the directory, with neither nft nor iptables on the machine.
func TestGuidesBridge(t *testing.T) {
	n := newNode(t, "10.199.5.0/24", "busybox")
	if err := n.network.Write(); err != nil { // ours is there too, and gives way
		t.Fatal(err)
	}
	n.configure(func() error {
		return os.WriteFile(filepath.Join(n.network.Dir, "10-bridge.conf"), []byte(strings.ReplaceAll(guide, "${POD_CIDR}", "10.199.5.0/24")), 0o644)
	})
	if err := n.pull("busybox", nil); err != nil {
		t.Fatal(err)
	}
	// The runtime watches the directory.
	n.await("the bridge to be used", func() bool {
		p := n.run("early", "busybox", "true")
		n.remove(p)
		_, err := netlink.LinkByName("cnio0")
		return err == nil
	})
	a, b := n.run("a", "busybox", "sh", "-c", "while true; do echo a | nc -l -p 80; done"), n.run("b", "busybox", "sleep", "1000")
	n.await("a to answer b", func() bool { return n.exec(b, "sh", "-c", "nc -w 1 "+a.ip+" 80 </dev/null || true") == "a" })

	// Outgoing connections have the node's address.
	seen := outside(t, "192.0.2.1/30", "192.0.2.2/30")
	n.exec(b, "sh", "-c", "nc -w 1 192.0.2.2 80 </dev/null || true")
	select {
	case got := <-seen:
		if got != "192.0.2.1" {
			t.Errorf("out there b is %s", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("b does not reach the outside")
	}
	n.remove(a)
	n.remove(b)
	if rules := masquerading(t); rules != 0 {
		t.Errorf("%d rules of pods that are gone", rules)
	}
}

// outside returns a network next to the node's with a server on port 80 that responds with the client's address.
func outside(t *testing.T, node, there string) <-chan string {
	t.Helper()
	seen := make(chan string, 1)
	ready := make(chan error)
	end := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			ready <- err
			return
		}
		defer func() {
			if unix.Setns(home, unix.CLONE_NEWNET) == nil { // else the thread ends with the goroutine
				runtime.UnlockOSThread()
			}
			unix.Close(home)
		}()
		l, err := func() (net.Listener, error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return nil, err
			}
			veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "skiff-outside", PeerNamespace: netlink.NsFd(home)}
			if err := netlink.LinkAdd(veth); err != nil {
				return nil, err
			}
			if err := address("eth0", there); err != nil {
				return nil, err
			}
			return net.Listen("tcp4", ":80")
		}()
		ready <- err
		if err != nil {
			return
		}
		go func() { <-end; l.Close() }()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			conn.Close()
			select {
			case seen <- host:
			default:
			}
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(end) })
	if err := address("skiff-outside", node); err != nil {
		t.Fatal(err)
	}
	return seen
}

func address(link, cidr string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(l, a), netlink.LinkSetUp(l))
}

// masquerading returns how many masquerade rules the CNI plugins have set.
func masquerading(t *testing.T) int {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	table := &nftables.Table{Name: "skiff-cni", Family: nftables.TableFamilyINet}
	rules, err := c.GetRules(table, &nftables.Chain{Name: "postrouting", Table: table})
	if err != nil {
		t.Fatal(err)
	}
	return len(rules)
}
