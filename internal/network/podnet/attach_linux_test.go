package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// testServer is a Server without its socket: calls are made in the node's namespace.
type testServer struct {
	*Server
	node *namespace
}

func newTestServer(t *testing.T, node *namespace) *testServer {
	t.Helper()
	a := &testServer{&Server{config: Config{State: t.TempDir()}}, node}
	node.Must(t, func() (err error) {
		if a.addresses, err = openAddresses(filepath.Join(a.config.State, NetworkName)); err != nil {
			return err
		}
		a.links, err = openLinks()
		return err
	})
	t.Cleanup(a.links.close)
	return a
}

var dual = prefixes("10.42.0.0/24", "fd42::/64")

// path returns a path of the network namespace.
func (p *namespace) path() string { return fmt.Sprintf("/proc/self/fd/%d", p.FD) }

// call executes a CNI call for a pod.
func (a *testServer) call(command, sandbox string, pod *namespace, config pluginConfig) (*result, error) {
	config.CNIVersion = "1.1.0"
	c := call{command: command, owner: owner{sandbox, "eth0"}, config: config}
	if pod != nil {
		c.namespace = pod.path()
	}
	var out any
	err := a.node.Do(func() (err error) { out, err = a.do(c); return err })
	made, _ := out.(*result)
	return made, err
}

func (a *testServer) add(t *testing.T, sandbox string, pod *namespace, ranges []netip.Prefix) *result {
	t.Helper()
	made, err := a.call("ADD", sandbox, pod, pluginConfig{MTU: 1400, Ranges: ranges})
	if err != nil {
		t.Fatalf("ADD %s: %v", sandbox, err)
	}
	return made
}

// files returns the addresses in use according to the files.
func (a *testServer) files(t *testing.T) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(a.addresses.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), lastReserved) {
			out = append(out, e.Name())
		}
	}
	return out
}

// veths returns the node's ends of pods' links.
func (p *namespace) veths(t *testing.T) (out []string) {
	t.Helper()
	p.Must(t, func() error {
		all, err := netlink.LinkList()
		for _, l := range all {
			if strings.HasPrefix(l.Attrs().Name, "veth") {
				out = append(out, l.Attrs().Name)
			}
		}
		return err
	})
	return out
}

// settle waits until new links carry packets: the kernel enables them asynchronously.
func (p *namespace) settle(t *testing.T) {
	t.Helper()
	for _, name := range p.veths(t) {
		p.Must(t, func() error {
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				link, err := netlink.LinkByName(name)
				if err != nil || link.Attrs().OperState == netlink.OperUp {
					return err
				}
				if time.Now().After(end) {
					return fmt.Errorf("%s does not come up", name)
				}
			}
		})
	}
}

func (a *testServer) expectNothing(t *testing.T) {
	t.Helper()
	if links, files := a.node.veths(t), a.files(t); len(links) > 0 || len(files) > 0 {
		t.Errorf("links %v and addresses %v are left", links, files)
	}
	a.node.Must(t, func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		for _, r := range routes {
			if r.Dst != nil && r.Dst.IP.IsGlobalUnicast() {
				err = errors.Join(err, fmt.Errorf("a route to %s is left", r.Dst))
			}
		}
		return err
	})
}

// routes returns the routes of the namespace, without those that the kernel adds for each link.
func (p *namespace) routes(t *testing.T) (out []string) {
	t.Helper()
	p.Must(t, func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlink.RouteList(nil, family)
			if err != nil {
				return err
			}
			for _, r := range routes {
				if r.Dst != nil && r.Dst.IP.IsLinkLocalUnicast() || r.Dst != nil && r.Dst.IP.IsMulticast() || r.Dst != nil && r.Dst.IP.IsLoopback() {
					continue
				}
				out = append(out, fmt.Sprintf("%v via %v from %v scope %v", r.Dst, r.Gw, r.Src, r.Scope))
			}
		}
		return nil
	})
	slices.Sort(out)
	return out
}

// TestAttach: two pods reach each other and the node in both families as soon as they are attached, and their links are as ptp's.
func TestAttach(t *testing.T) {
	node, one, two := newNamespace(t, "node"), newNamespace(t, "one"), newNamespace(t, "two")
	a := newTestServer(t, node)
	one.Must(t, func() error { return writeSysctl("net/ipv6/conf/default/disable_ipv6", "1") }) // the default on some machines
	two.Must(t, func() error { return writeSysctl("net/ipv6/conf/default/accept_dad", "1") })   // the default everywhere
	made := a.add(t, "one", one, dual)
	a.add(t, "two", two, dual)
	for _, p := range []*namespace{node, one, two} {
		p.serve(t, "tcp", ":80")
	}
	node.settle(t)
	one.expects(t, "tcp", "10.42.0.3:80", "two 10.42.0.2")
	two.expects(t, "tcp", "[fd42::2]:80", "one fd42::3")
	two.expects(t, "tcp", "10.42.0.1:80", "node 10.42.0.3")
	one.expects(t, "tcp", "[fd42::1]:80", "node fd42::2")
	node.expects(t, "tcp", "10.42.0.2:80", "one 10.42.0.1")
	node.expects(t, "tcp", "[fd42::3]:80", "two fd42::1")

	want := []string{
		"0.0.0.0/0 via 10.42.0.1 from <nil> scope universe",
		"10.42.0.0/24 via 10.42.0.1 from 10.42.0.2 scope universe",
		"10.42.0.1/32 via <nil> from 10.42.0.2 scope link",
		"::/0 via fd42::1 from <nil> scope universe",
		"fd42::/64 via fd42::1 from fd42::2 scope universe",
		"fd42::1/128 via <nil> from fd42::2 scope universe",
	}
	if got := one.routes(t); !slices.Equal(got, want) {
		t.Errorf("the pod's routes are\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := node.routes(t); !slices.Contains(got, "10.42.0.2/32 via <nil> from <nil> scope host") {
		t.Errorf("the node's routes are\n%s", strings.Join(got, "\n"))
	}
	one.Must(t, func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil && (link.Attrs().MTU != 1400 || link.Attrs().HardwareAddr.String() != made.Interfaces[1].Mac) {
			err = fmt.Errorf("eth0 is %+v, and CNI was told %+v", link.Attrs(), made)
		}
		return err
	})
	node.Must(t, func() error {
		data, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + made.Interfaces[0].Name + "/accept_ra")
		if err == nil && strings.TrimSpace(string(data)) != "0" {
			err = errors.New("a pod may say what routes the node has")
		}
		link, e := netlink.LinkByName(made.Interfaces[0].Name)
		if e == nil && (link.Attrs().MTU != 1400 || link.Attrs().HardwareAddr.String() != made.Interfaces[0].Mac) {
			e = fmt.Errorf("%s is %+v", link.Attrs().Name, link.Attrs())
		}
		return errors.Join(err, e)
	})
	data, err := os.ReadFile(filepath.Join(a.addresses.dir, "10.42.0.2"))
	if err != nil || string(data) != "one\r\neth0" {
		t.Errorf("host-local would not find whose address it is: %q, %v", data, err)
	}
	text, err := json.Marshal(made)
	wantText := fmt.Sprintf(`{"cniVersion":"1.1.0","interfaces":[{"name":%q,"mac":%q},{"name":"eth0","mac":%q,"sandbox":%q}],`+
		`"ips":[{"interface":1,"address":"10.42.0.2/24","gateway":"10.42.0.1"},{"interface":1,"address":"fd42::2/64","gateway":"fd42::1"}],`+
		`"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`, made.Interfaces[0].Name, made.Interfaces[0].Mac, made.Interfaces[1].Mac, one.path())
	if err != nil || string(text) != wantText {
		t.Errorf("CNI is told %s, %v, not %s", text, err, wantText)
	}

	for range 2 { // a second time is not an error
		for name, pod := range map[string]*namespace{"one": one, "two": two} {
			if _, err := a.call("DEL", name, pod, pluginConfig{}); err != nil {
				t.Errorf("DEL: %v", err)
			}
		}
	}
	a.expectNothing(t)
	one.Must(t, func() error {
		if _, err := netlink.LinkByName("eth0"); err == nil {
			return errors.New("the pod still has its link")
		}
		return nil
	})
}

// TestAttachAgain: the link that a killed skiff left half made is created again by the next ADD, with the same address, and removed by DEL.
func TestAttachAgain(t *testing.T) {
	node, pod, other := newNamespace(t, "node"), newNamespace(t, "pod"), newNamespace(t, "other")
	a := newTestServer(t, node)
	first := a.add(t, "pod", pod, dual)
	again := a.add(t, "pod", pod, dual)
	if first.IPs[0].Address != again.IPs[0].Address || len(a.files(t)) != 2 || len(node.veths(t)) != 1 {
		t.Errorf("%+v and then %+v, addresses %v, links %v", first.IPs, again.IPs, a.files(t), node.veths(t))
	}
	pod.serve(t, "tcp", ":80")
	node.settle(t)
	node.expects(t, "tcp", "10.42.0.2:80", "pod 10.42.0.1")

	// Another process starts with the files and the kernel's links; the namespace is unknown.
	var b *testServer
	node.Must(t, func() (err error) {
		b = &testServer{&Server{config: a.config}, node}
		if b.addresses, err = openAddresses(a.addresses.dir); err == nil {
			b.links, err = openLinks()
		}
		return err
	})
	t.Cleanup(b.links.close)
	if made := b.add(t, "other", other, dual); made.IPs[0].Address.String() != "10.42.0.3/24" {
		t.Errorf("the next address is %v", made.IPs[0].Address)
	}
	for _, name := range []string{"pod", "other"} {
		if _, err := b.call("DEL", name, nil, pluginConfig{}); err != nil {
			t.Errorf("DEL without a namespace: %v", err)
		}
	}
	b.expectNothing(t)

	// The link that ptp created has another name.
	connect(t, node, pod, "vethptp", "eth0", []string{"10.42.0.1/32"}, []string{"10.42.0.9/24"})
	if err := os.WriteFile(filepath.Join(a.addresses.dir, "10.42.0.9"), []byte("ptps\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.addresses.load(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.call("DEL", "ptps", pod, pluginConfig{}); err != nil {
		t.Errorf("DEL of what ptp made: %v", err)
	}
	b.expectNothing(t)
	gone := filepath.Join(t.TempDir(), "gone")
	for range 2 { // the file does not exist, then exists but is no longer a namespace
		c := call{command: "DEL", owner: owner{"pod", "eth0"}, namespace: gone}
		if _, err := b.do(c); err != nil {
			t.Errorf("DEL with a namespace that is gone: %v", err)
		}
		if err := os.WriteFile(gone, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAttachFails: a failed call leaves nothing behind.
func TestAttachFails(t *testing.T) {
	node, pod := newNamespace(t, "node"), newNamespace(t, "pod")
	a := newTestServer(t, node)
	config := pluginConfig{Ranges: dual}
	refused := func(what, want string, pod *namespace, config pluginConfig) {
		t.Helper()
		if _, err := a.call("ADD", "pod", pod, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
		a.expectNothing(t)
	}
	refused("the node's own namespace", "the node's own", node, config)
	refused("no range", "0 ranges", pod, pluginConfig{})
	refused("a range of two addresses", "too small", pod, pluginConfig{Ranges: prefixes("10.42.0.0/31")})
	refused("an address within a range", "10.42.0.5/24", pod, pluginConfig{Ranges: prefixes("10.42.0.5/24")})
	refused("two of a family", "of one family", pod, pluginConfig{Ranges: prefixes("10.42.0.0/24", "10.43.0.0/24")})
	refused("an MTU that the kernel refuses", "invalid", pod, pluginConfig{Ranges: dual, MTU: 1})
	connect(t, pod, newNamespace(t, "elsewhere"), "eth0", "eth0", nil, nil)
	refused("a pod with a link of that name", "file exists", pod, config)
	if _, err := a.call("DEL", "pod", node, pluginConfig{}); err == nil || !strings.Contains(err.Error(), "the node's own") {
		t.Errorf("DEL may remove a link of the node's: %v", err)
	}
	refused("addresses that the kernel refuses, once there is a link", "address ff0e::", newNamespace(t, "another"), pluginConfig{Ranges: prefixes("10.42.0.0/24", "ff0e::/64")})
}

// TestAttachMany: many concurrent calls all get distinct addresses and working links.
func TestAttachMany(t *testing.T) {
	node := newNamespace(t, "node")
	a := newTestServer(t, node)
	pods := make([]*namespace, 50)
	for i := range pods {
		pods[i] = newNamespace(t, fmt.Sprint("pod", i))
		pods[i].serve(t, "tcp", ":80")
	}
	made := make([]*result, len(pods))
	failed := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, pod := range pods {
		wg.Go(func() { made[i], failed[i] = a.call("ADD", pod.Name, pod, pluginConfig{Ranges: dual}) })
	}
	wg.Wait()
	node.settle(t)
	seen := map[netip.Addr]bool{}
	for i, pod := range pods {
		if failed[i] != nil {
			t.Fatal(failed[i])
		}
		for _, ip := range made[i].IPs {
			seen[ip.Address.Addr()] = true
		}
		node.expects(t, "tcp", made[i].IPs[0].Address.Addr().String()+":80", pod.Name+" 10.42.0.1")
	}
	if len(seen) != 2*len(pods) || len(a.files(t)) != 2*len(pods) {
		t.Errorf("%d addresses, %d files", len(seen), len(a.files(t)))
	}
	for i, pod := range pods {
		wg.Go(func() { _, failed[i] = a.call("DEL", pod.Name, pod, pluginConfig{}) })
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Error(err)
	}
	a.expectNothing(t)
}
