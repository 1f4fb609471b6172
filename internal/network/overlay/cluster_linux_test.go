package overlay

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/network/podnet"
)

// testTimeout bounds every wait. Usually waits take a hundredth of it.
const testTimeout = 30 * time.Second

// testCluster is an API server and machines on a switch, each a node with a pod.
type testCluster struct {
	t      testing.TB
	server *apitest.Server
	bridge *namespace
	mtu    int
	ports  int
	remote bool // nodes reach the server over HTTPS
}

func newTestCluster(t testing.TB, mtu int, opts ...apitest.Option) *testCluster {
	w := &testCluster{t: t, server: apitest.Start(t, opts...), bridge: newNamespace(t, "switch"), mtu: mtu}
	w.bridge.Must(t, func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MTU: mtu}})
	})
	w.bridge.Up(t, "br0")
	return w
}

var clusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")}

// machine is a network namespace that stands for the machine of a node.
type machine struct {
	*namespace
	w        *testCluster
	number   int
	pod      *namespace
	overlay  *Overlay
	stop     func()
	mtus     chan int
	log      *lockedBuffer
	ip4, ip6 string // the node's addresses
}

func (m *machine) podIP(v6 bool) string {
	if v6 {
		return fmt.Sprintf("fd42:0:0:%x::2", m.number)
	}
	return fmt.Sprintf("10.42.%d.2", m.number)
}

func (m *machine) ranges() []string {
	return []string{fmt.Sprintf("10.42.%d.0/24", m.number), fmt.Sprintf("fd42:0:0:%x::/64", m.number)}
}

// add connects a machine to the switch. It is not a node yet.
func (w *testCluster) add(number int) *machine {
	w.t.Helper()
	m := &machine{namespace: newNamespace(w.t, fmt.Sprint("n", number)), w: w, number: number, log: &lockedBuffer{}}
	w.ports++
	port := fmt.Sprint("port", w.ports)
	link(w.t, w.bridge, m.namespace, port, "eth0", w.mtu)
	w.bridge.Must(w.t, func() error {
		l, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(l, br)
	})
	m.ip4, m.ip6 = fmt.Sprintf("192.0.2.%d", number), fmt.Sprintf("2001:db8::%x", number)
	m.Address(w.t, "eth0", m.ip4+"/24", m.ip6+"/64")
	m.Must(w.t, func() error { return podnet.EnsureMasquerade(clusterCIDRs) })
	return m
}

// join registers the machine as a node with addresses, starts its overlay, and adds a pod when the MTU is known.
func (m *machine) join(backend string, addresses ...string) {
	m.w.t.Helper()
	m.register(addresses...)
	m.start(backend)
	m.addPod()
}

// pair returns two nodes whose pods reach each other.
func (w *testCluster) pair(backend string) (a, b *machine) {
	w.t.Helper()
	a, b = w.add(1), w.add(2)
	a.join(backend, a.ip4)
	b.join(backend, b.ip4)
	a.pod.reaches(w.t, b.podIP(false), a.podIP(false))
	return a, b
}

func (m *machine) register(addresses ...string) {
	m.w.t.Helper()
	if _, err := m.w.server.Client().CoreV1().Nodes().Create(context.Background(), nodeObject(m.Name, m.ranges(), addresses), metav1.CreateOptions{}); err != nil {
		m.w.t.Fatal(err)
	}
}

func nodeObject(name string, ranges, addresses []string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: ranges[0], PodCIDRs: ranges}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// launch runs the overlay in the machine, with the identity of its node.
func (m *machine) launch(backend string) {
	m.w.t.Helper()
	m.mtus = make(chan int, 100)
	var err error
	connect := m.w.server.InProcess
	if m.w.remote {
		connect = m.w.server.Remote
	}
	m.overlay, err = New(Options{Client: connect("overlay", "system:node:"+m.Name, "system:nodes"), NodeName: m.Name, Backend: backend,
		NodeIPs: []netip.Addr{netip.MustParseAddr(m.ip4)}, ClusterCIDRs: clusterCIDRs, Resync: 200 * time.Millisecond,
		MTUChanged: func(mtu int) { m.mtus <- mtu }, Log: slog.New(slog.NewTextHandler(m.log, nil))})
	if err != nil {
		m.w.t.Fatal(err)
	}
	m.stop = run(m.w.t, m.namespace, m.overlay)
}

// start runs the overlay and waits until it is synced.
func (m *machine) start(backend string) {
	m.w.t.Helper()
	m.launch(backend)
	m.ready()
}

func (m *machine) ready() {
	m.w.t.Helper()
	select {
	case <-m.overlay.Synced():
	case <-time.After(testTimeout):
		m.w.t.Fatalf("the overlay of %s is not ready:\n%s", m.Name, m.log)
	}
}

// run runs an overlay in a namespace until the returned function is called.
func run(t testing.TB, s *namespace, o *Overlay) func() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Do(func() error { return o.Run(ctx) }) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the overlay of %s: %v", s.Name, err)
			}
		case <-time.After(testTimeout):
			t.Errorf("the overlay of %s does not stop", s.Name)
		}
	})
	t.Cleanup(stop)
	return stop
}

// addPod connects a pod as the CNI plugin ptp does.
func (m *machine) addPod() {
	t := m.w.t
	m.pod = newNamespace(t, fmt.Sprint("pod", m.number))
	link(t, m.namespace, m.pod, "veth0", "eth0", m.overlay.MTU())
	gw4, gw6 := fmt.Sprintf("10.42.%d.1", m.number), fmt.Sprintf("fd42:0:0:%x::1", m.number)
	m.Address(t, "veth0", gw4+"/32", gw6+"/128")
	m.pod.Address(t, "eth0", m.podIP(false)+"/32", m.podIP(true)+"/128")
	m.Route(t, m.podIP(false)+"/32", "", "veth0")
	m.Route(t, m.podIP(true)+"/128", "", "veth0")
	m.pod.Route(t, gw4+"/32", "", "eth0")
	m.pod.Route(t, "0.0.0.0/0", gw4, "eth0")
	m.pod.Route(t, gw6+"/128", "", "eth0")
	m.pod.Route(t, "::/0", gw6, "eth0")
	m.pod.serve(t)
	m.serve(t)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
