package nodeipam_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/node/nodeipam"
	"skiff/internal/controller/stories"
	"skiff/test/seed"
)

func with(c controller.Config) func(controller.Deps) controller.Loop {
	return func(d controller.Deps) controller.Loop {
		d.Config = c
		return nodeipam.New(d)
	}
}

func TestStories(t *testing.T) {
	stories.Run(t, with(controller.Config{AllocateNodeCIDRs: true, ClusterCIDRs: []string{"10.0.0.0/22", "fd00::/62"}, ServiceCIDRs: []string{"10.0.0.0/25"}}), stories.Options{})
}

// Without --allocate-node-cidrs nodes get nothing.
func TestOff(t *testing.T) {
	if loop := nodeipam.New(controller.Deps{}); len(loop.Watch) != 0 || loop.Name != "node-ipam-controller" {
		t.Errorf("%+v", loop)
	}
}

// Nodes are added and deleted while the loop is restarted at random moments. No two nodes ever have the same CIDR, and in the end every node has one, though
// there are just as many CIDRs as nodes.
func TestNoCollisionsWhateverHappens(t *testing.T) {
	server := apitest.Start(t)
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	loop := with(controller.Config{AllocateNodeCIDRs: true, ClusterCIDRs: []string{"10.0.0.0/19"}})
	const most = 32
	nodes, ctx := server.Client().CoreV1().Nodes(), t.Context()
	names, made := []string{}, 0
	create := func() {
		made++
		n, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", made)}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, n.Name)
	}
	check := func() (missing string) {
		list, err := nodes.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owners := map[netip.Prefix]string{}
		for _, n := range list.Items {
			if n.Spec.PodCIDR == "" {
				missing = n.Name + " has no range"
				continue
			}
			p := netip.MustParsePrefix(n.Spec.PodCIDR)
			if other := owners[p]; other != "" {
				t.Fatalf("%s and %s both have %v", other, n.Name, p)
			}
			owners[p] = n.Name
			if len(n.Spec.PodCIDRs) != 1 || n.Spec.PodCIDRs[0] != n.Spec.PodCIDR {
				t.Fatalf("%s has %v and %v", n.Name, n.Spec.PodCIDR, n.Spec.PodCIDRs)
			}
		}
		return missing
	}
	for range 15 {
		stop := controllertest.Run(t, server, loop)
		for range random.IntN(40) {
			switch {
			case len(names) < most && random.IntN(3) > 0:
				create()
			case len(names) > 0:
				i := random.IntN(len(names))
				if err := nodes.Delete(ctx, names[i], metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				names = slices.Delete(names, i, i+1)
			}
			check()
		}
		stop()
	}
	for len(names) < most {
		create()
	}
	controllertest.Run(t, server, loop)
	controllertest.Eventually(t, check)
}

// A node without a free CIDR waits until another is deleted, and an Event says why.
func TestFullThenFree(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, with(controller.Config{AllocateNodeCIDRs: true, ClusterCIDRs: []string{"10.0.0.0/23"}}))
	nodes, ctx := server.Client().CoreV1().Nodes(), t.Context()
	without := func() (names []string) {
		list, err := nodes.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list.Items {
			if n.Spec.PodCIDR == "" {
				names = append(names, n.Name)
			}
		}
		return names
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var waits string
	controllertest.Eventually(t, func() string {
		events, err := server.Client().CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=CIDRNotAvailable"})
		if err != nil {
			t.Fatal(err)
		}
		if len(events.Items) == 0 || len(without()) != 1 {
			return "an event, and one node without a range"
		}
		waits = without()[0]
		if e := events.Items[0]; e.InvolvedObject.Name != waits || e.Message != "Node "+waits+" status is now: CIDRNotAvailable" {
			t.Errorf("%+v", e)
		}
		return ""
	})
	// The Event is recorded once, however often the node is reconciled.
	for i := range 5 {
		if _, err := nodes.Patch(ctx, waits, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"try":"%d"}}}`, i), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	goes := "a"
	if waits == goes {
		goes = "b"
	}
	if err := nodes.Delete(ctx, goes, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		if left := without(); len(left) > 0 {
			return fmt.Sprintf("ranges for %v", left)
		}
		return ""
	})
	events, err := server.Client().CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=CIDRNotAvailable"})
	if err != nil || len(events.Items) != 1 || events.Items[0].Count != 1 || events.Items[0].Source.Component != "cidrAllocator" {
		t.Errorf("events: %+v, %v", events.Items, err)
	}
}

// When several nodes are deleted at once, as many waiting nodes get their CIDRs, each at the event of a deletion, and the others keep theirs.
func TestManyFree(t *testing.T) {
	const count, gone = 16, 10
	server := apitest.Start(t)
	controllertest.Run(t, server, with(controller.Config{AllocateNodeCIDRs: true, ClusterCIDRs: []string{"10.0.0.0/20"}}))
	nodes, ctx := server.Client().CoreV1().Nodes(), t.Context()
	ranges := func() map[string]string {
		list, err := nodes.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		has := map[string]string{}
		for _, n := range list.Items {
			if n.Spec.PodCIDR != "" {
				has[n.Name] = n.Spec.PodCIDR
			}
		}
		return has
	}
	create := func(name string) {
		for i := range count {
			if _, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("first")
	var first map[string]string
	controllertest.Eventually(t, func() string {
		if first = ranges(); len(first) < count {
			return fmt.Sprintf("%d of %d nodes have a range", len(first), count)
		}
		return ""
	})
	create("late")
	controllertest.Eventually(t, func() string {
		events, err := server.Client().CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=CIDRNotAvailable"})
		if err != nil {
			t.Fatal(err)
		}
		if len(events.Items) < count {
			return fmt.Sprintf("%d of %d nodes were told that there is no range", len(events.Items), count)
		}
		return ""
	})
	var deleting sync.WaitGroup
	for i := range gone {
		deleting.Go(func() {
			if err := nodes.Delete(ctx, fmt.Sprintf("first-%d", i), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	deleting.Wait()
	var now map[string]string
	controllertest.Eventually(t, func() string {
		if now = ranges(); len(now) < count {
			return fmt.Sprintf("%d of %d ranges are in use", len(now), count)
		}
		return ""
	})
	for i := gone; i < count; i++ {
		name := fmt.Sprintf("first-%d", i)
		if now[name] != first[name] {
			t.Errorf("%s had %s and has %s", name, first[name], now[name])
		}
	}
	owners := map[string]string{}
	for name, cidr := range now {
		if other := owners[cidr]; other != "" {
			t.Errorf("%s and %s have %s", name, other, cidr)
		}
		owners[cidr] = name
	}
}
