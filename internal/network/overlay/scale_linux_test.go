package overlay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"skiff/internal/apitest"
	"skiff/internal/network/networktest"
	"skiff/test/seed"
)

// largeCluster is a machine in a cluster whose many other nodes exist only as objects.
type largeCluster struct {
	*machine
	api  kubernetes.Interface
	wide []netip.Prefix
}

func newLargeCluster(t testing.TB) *largeCluster {
	w := newTestCluster(t, 1500, apitest.WithoutGuard())
	return &largeCluster{machine: w.add(1), api: w.server.InProcess("test", "admin", "system:masters").Kubernetes(),
		wide: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd42::/48")}}
}

func (c *largeCluster) object(i int) *corev1.Node {
	n := nodeObject(fmt.Sprint("node-", i), []string{fmt.Sprintf("10.%d.%d.0/24", 100+i/256, i%256), fmt.Sprintf("fd42:0:0:%x::/64", i+0x100)},
		[]string{fmt.Sprintf("192.0.%d.%d", 3+i/250, 1+i%250)})
	n.Annotations = map[string]string{BackendAnnotation: VXLAN, MACAnnotation: macOf(n.Name).String()}
	return n
}

// each calls do for every number below n, several at once.
func each(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	failed := make(chan error, n)
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < n; i += 4 {
				if err := do(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

func (c *largeCluster) create(t testing.TB, n int) {
	t.Helper()
	err := each(n, func(i int) error {
		_, err := c.api.CoreV1().Nodes().Create(context.Background(), c.object(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// begin registers machine 1 as a node and runs its overlay. The returned function stops it.
func (c *largeCluster) begin(t testing.TB) (*Overlay, func()) {
	t.Helper()
	o, err := New(Options{Client: c.w.server.InProcess("overlay", "system:node:"+c.Name, "system:nodes"), NodeName: c.Name, ClusterCIDRs: c.wide,
		NodeIPs: []netip.Addr{netip.MustParseAddr(c.ip4)}, Log: slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: slog.LevelError + 1}))})
	if err != nil {
		t.Fatal(err)
	}
	return o, run(t, c.namespace, o)
}

// programmed returns the overlay's state in the kernel.
func (c *largeCluster) programmed(t testing.TB) (have entries) {
	t.Helper()
	c.Must(t, func() error {
		k, err := openKernel(settings{name: c.Name, backend: VXLAN}, Options{}, nil, tunnelCounts{})
		if err != nil {
			return err
		}
		defer k.close()
		vx, err := k.find(vxlanDevice)
		if err != nil || vx == nil {
			return err
		}
		k.device = vx.Attrs().Index
		err = k.readState()
		have = k.current
		return err
	})
	return have
}

func (c *largeCluster) waitFor(t testing.TB, n int) {
	t.Helper()
	eventually(t, func() error {
		if have := c.programmed(t); len(have.routes) != 2*n || len(have.neighbours) != 2*n || len(have.forwards) != n {
			return fmt.Errorf("%d routes, %d neighbours, %d forwarding entries, want %d, %d, %d", len(have.routes), len(have.neighbours), len(have.forwards), 2*n, 2*n, n)
		}
		return nil
	})
}

// TestThousandNodes: a thousand nodes are programmed within two seconds, whether they exist before or are created all at once.
func TestThousandNodes(t *testing.T) {
	const n, limit = 1000, 2 * time.Second
	c := newLargeCluster(t)
	c.create(t, n)
	start := time.Now()
	_, stop := c.begin(t)
	c.waitFor(t, n)
	took := time.Since(start)
	t.Logf("%d Nodes that were there: %v", n, took)
	if took > limit {
		t.Errorf("it took %v to converge", took)
	}

	// A restart changes nothing.
	stop()
	start = time.Now()
	o, _ := c.begin(t)
	<-o.Synced()
	t.Logf("after a restart: %v", time.Since(start))
	if changes := o.changes(t); changes != 0 {
		t.Errorf("a restart made %v changes", changes)
	}

	start = time.Now()
	if err := each(n, func(i int) error {
		return c.api.CoreV1().Nodes().Delete(context.Background(), c.object(i).Name, metav1.DeleteOptions{})
	}); err != nil {
		t.Fatal(err)
	}
	done := time.Now()
	c.waitFor(t, 0)
	t.Logf("deleted in %v, forgotten %v after that", done.Sub(start), time.Since(done))
	start = time.Now()
	c.create(t, n)
	done = time.Now()
	c.waitFor(t, n)
	took = time.Since(done)
	t.Logf("created in %v, known %v after that", done.Sub(start), took)
	if took > limit {
		t.Errorf("it took %v to converge", took)
	}
}

// changes returns how many entries were changed.
func (o *Overlay) changes(t testing.TB) (sum float64) {
	t.Helper()
	families, err := o.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "skiff_overlay_changes_total" {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestChurn: after random creations, deletions and changes of Nodes the kernel has exactly the state for the remaining Nodes.
func TestChurn(t *testing.T) {
	number := seed.New(t)
	const n, rounds, perRound = 1000, 4, 400
	c := newLargeCluster(t)
	c.register(c.ip4)
	c.create(t, n)
	_, stop := c.begin(t)
	for round := range rounds {
		if round == rounds/2 { // skiff is stopped for a while
			stop()
		}
		random := rand.New(rand.NewPCG(number, uint64(round)))
		type change struct {
			node int
			what int
			with int
		}
		perNode := map[int][]change{} // the changes of one node are made in order
		for range perRound {
			ch := change{random.IntN(n), random.IntN(5), random.IntN(n)}
			perNode[ch.node] = append(perNode[ch.node], ch)
		}
		keys := slices.Sorted(maps.Keys(perNode))
		if err := each(len(keys), func(i int) error {
			for _, ch := range perNode[keys[i]] {
				if err := c.change(ch.node, ch.what, ch.with); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if round == rounds/2 {
			_, stop = c.begin(t)
		}
		want := c.expected(t)
		eventually(t, func() error {
			have := c.programmed(t)
			if !maps.Equal(have.routes, want.routes) || !maps.Equal(have.neighbours, want.neighbours) || !maps.Equal(have.forwards, want.forwards) {
				return fmt.Errorf("seed %d, round %d: %s", number, round, difference(have, want))
			}
			return nil
		})
	}
}

// change makes one change to a Node, which may not exist.
func (c *largeCluster) change(i, what, with int) error {
	nodes := c.api.CoreV1().Nodes()
	object := c.object(i)
	patch := func(what any, sub ...string) error {
		data, err := json.Marshal(what)
		if err == nil {
			_, err = nodes.Patch(context.Background(), object.Name, types.MergePatchType, data, metav1.PatchOptions{}, sub...)
		}
		return err
	}
	annotate := func(key string, value any) error {
		return patch(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	}
	var err error
	switch what {
	case 0:
		err = nodes.Delete(context.Background(), object.Name, metav1.DeleteOptions{})
	case 1: // created again, perhaps with the range of another
		if with%3 == 0 {
			object.Spec.PodCIDRs = c.object(with).Spec.PodCIDRs
			object.Spec.PodCIDR = object.Spec.PodCIDRs[0]
		}
		_, err = nodes.Create(context.Background(), object, metav1.CreateOptions{})
	case 2:
		err = patch(map[string]any{"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": fmt.Sprintf("198.51.%d.%d", with/250, 1+with%250)}}}}, "status")
	case 3: // perhaps the hardware address of another
		err = annotate(MACAnnotation, macOf(fmt.Sprint("node-", with)).String())
	case 4:
		err = annotate(BackendAnnotation, []any{"vxlan", "vxlan", "udp", nil}[with%4])
	}
	if metav1Status(err) {
		return nil
	}
	return err
}

func metav1Status(err error) bool {
	type status interface{ Status() metav1.Status }
	s, ok := err.(status)
	return ok && (s.Status().Code == 404 || s.Status().Code == 409)
}

// expected computes the wanted state node by node, without the optimisations of the package.
func (c *largeCluster) expected(t testing.TB) entries {
	t.Helper()
	list, err := c.api.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return read(&a).before(read(&b)) })
	want := entries{routes: map[routeKey]route{}, neighbours: map[netip.Addr]mac{}, forwards: map[mac]netip.Addr{}}
	var taken []netip.Prefix
	for _, text := range c.ranges() {
		taken = append(taken, netip.MustParsePrefix(text))
		want.routes[routeKey{netip.MustParsePrefix(text), true}] = route{}
	}
	known := map[string]bool{}
	for _, n := range list.Items {
		if n.Name == c.Name {
			continue
		}
		var free []netip.Prefix
		for _, text := range n.Spec.PodCIDRs {
			r := netip.MustParsePrefix(text)
			if !slices.ContainsFunc(taken, r.Overlaps) {
				free = append(free, r)
			}
		}
		taken = append(taken, free...)
		hardware := n.Annotations[MACAnnotation]
		if n.Annotations[BackendAnnotation] != "vxlan" || known[hardware] || len(free) == 0 {
			continue
		}
		known[hardware] = true
		m := read(&n).mac
		want.forwards[m] = netip.MustParseAddr(n.Status.Addresses[0].Address)
		for _, r := range free {
			via := gateway(r, m)
			want.neighbours[via] = m
			want.routes[routeKey{r, false}] = route{via: via, viaOverlay: true}
		}
	}
	return want
}

func difference(have, want entries) (out string) {
	for key, r := range want.routes {
		if have.routes[key] != r {
			out += fmt.Sprintf("route %v is %v, want %v; ", key, have.routes[key], r)
		}
	}
	for key := range have.routes {
		if _, ok := want.routes[key]; !ok {
			out += fmt.Sprintf("route %v is too much; ", key)
		}
	}
	for at, to := range want.forwards {
		if have.forwards[at] != to {
			out += fmt.Sprintf("forward %v is %v, want %v; ", at, have.forwards[at], to)
		}
	}
	return out[:min(len(out), 2000)] + fmt.Sprintf("%d, %d neighbours", len(have.neighbours), len(want.neighbours))
}

// BenchmarkDecide measures the decision for a thousand nodes, which is made at every change.
func BenchmarkDecide(b *testing.B) {
	c := &largeCluster{machine: &machine{namespace: &namespace{&networktest.Namespace{Name: "n1"}}, number: 1}}
	known := newNodes()
	for i := range 1000 {
		known.set(c.object(i))
	}
	s := settings{name: "n1", backend: VXLAN, clusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd42::/48")}}
	p := localAddr{address: netip.MustParseAddr("192.0.2.1"), mtu: 1500}
	for b.Loop() {
		self, others := known.all("n1")
		if got := s.decide(underlay{outer: p, ipv4: &p}, self, others); got.peers != 1000 {
			b.Fatal(got.peers, got.problems)
		}
	}
}
