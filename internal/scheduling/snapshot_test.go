package scheduling_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedv1 "k8s.io/kube-scheduler/config/v1"

	"skiff/internal/scheduling"
	"skiff/internal/scheduling/schedulingtest"
)

func bare(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
			corev1.ResourcePods: resource.MustParse("20")}}}
}

func names(s *scheduling.Snapshot) string {
	var out []string
	for _, n := range s.Nodes() {
		out = append(out, fmt.Sprintf("%s:%d", n.Name, len(n.Pods)))
	}
	return strings.Join(out, " ")
}

func TestUpdateLeavesTheOldSnapshotAlone(t *testing.T) {
	t.Parallel()
	empty := scheduling.NewSnapshot(nil)
	first := empty.Update([]*scheduling.Node{scheduling.NewNode(bare("a", nil)), scheduling.NewNode(bare("b", nil))}, nil)
	second := first.Update([]*scheduling.Node{first.Node("a").With(plain("p", "x"))}, nil)
	third := second.Update([]*scheduling.Node{scheduling.NewNode(bare("c", nil)), scheduling.NewNode(bare("c", nil), plain("q", "x"))}, []string{"b", "unknown"})
	again := third.Update([]*scheduling.Node{scheduling.NewNode(bare("b", nil))}, []string{"a"})
	for _, c := range []struct {
		of   *scheduling.Snapshot
		want string
	}{{empty, ""}, {first, "a:0 b:0"}, {second, "a:1 b:0"}, {third, "a:1 c:1"}, {again, "c:1 b:0"}} {
		if got := names(c.of); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if third.Node("b") != nil || again.Node("b") == nil || again.Node("b") == first.Node("b") {
		t.Error("a node is found by name while it is there")
	}
	if first.Node("b") != second.Node("b") {
		t.Error("what does not change is shared")
	}
}

func TestZonesTakeTurns(t *testing.T) {
	t.Parallel()
	var list []*scheduling.Node
	for i, zone := range []string{"z1", "z1", "z1", "z2", "z3", "z3"} {
		list = append(list, scheduling.NewNode(bare(fmt.Sprint("n", i), map[string]string{corev1.LabelTopologyZone: zone})))
	}
	s := scheduling.NewSnapshot(nil).Update(list, nil)
	if got, want := names(s), "n0:0 n3:0 n4:0 n1:0 n5:0 n2:0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s = s.Update([]*scheduling.Node{s.Node("n1").WithNode(bare("n1", map[string]string{corev1.LabelTopologyZone: "z4"}))}, nil)
	if got, want := names(s), "n0:0 n3:0 n4:0 n1:0 n5:0 n2:0"; len(got) != len(want) || s.Node("n1").Labels[corev1.LabelTopologyZone] != "z4" {
		t.Errorf("after a node moved: %s", got)
	}
}

func TestNodeOfOneSnapshotPutIntoAnotherIsCopied(t *testing.T) {
	t.Parallel()
	here := scheduling.NewSnapshot(nil).Update([]*scheduling.Node{scheduling.NewNode(bare("other", nil)), scheduling.NewNode(bare("a", nil))}, nil)
	there := scheduling.NewSnapshot(nil).Update([]*scheduling.Node{here.Node("a")}, nil)
	if there.Node("a") == here.Node("a") {
		t.Error("two snapshots number one node")
	}
}

func TestImagesAreCountedOverNodes(t *testing.T) {
	t.Parallel()
	with := func(name string, images ...string) *corev1.Node {
		n := bare(name, nil)
		for _, image := range images {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: 100})
		}
		return n
	}
	s := scheduling.NewSnapshot(nil).Update([]*scheduling.Node{scheduling.NewNode(with("a", "x", "y")), scheduling.NewNode(with("b", "x"))}, nil)
	if got := s.Image("x"); got != (scheduling.ImageSpread{Size: 100, Nodes: 2}) {
		t.Errorf("x: %+v", got)
	}
	s = s.Update([]*scheduling.Node{s.Node("a").WithNode(with("a", "y"))}, []string{"b"})
	if s.Image("x").Nodes != 0 || s.Image("y").Nodes != 1 {
		t.Errorf("x: %+v, y: %+v", s.Image("x"), s.Image("y"))
	}
}

func TestNodeSumsFollowItsPods(t *testing.T) {
	t.Parallel()
	gpu := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("2")
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
	}
	empty := scheduling.NewNode(bare("a", nil))
	p, q, r := plain("p", "x"), plain("q", "x", gpu), plain("r", "x", gpu, antiAffinity("zone"))
	full := empty.With(p).With(q).With(r)
	if full.Requested.MilliCPU != 30 || full.Requested.Scalar("example.com/gpu") != 4 || len(full.UsedPorts) != 2 || len(full.WithAffinity) != 1 ||
		len(full.WithRequiredAntiAffinity) != 1 || full.NonZero.Memory != 3*16<<20 {
		t.Errorf("full: %+v", full)
	}
	less := full.Without(r.UID).Without(p.UID)
	if less.Requested.MilliCPU != 10 || less.Requested.Scalar("example.com/gpu") != 2 || len(less.UsedPorts) != 1 || len(less.WithAffinity)+len(less.WithRequiredAntiAffinity) != 0 ||
		len(less.Pods) != 1 || less.Pods[0] != q {
		t.Errorf("less: %+v", less)
	}
	if full.Without("nobody") != full {
		t.Error("without a pod that is not there it is the same node")
	}
	if len(empty.Pods) != 0 || len(full.Pods) != 3 || empty.Requested.MilliCPU != 0 {
		t.Error("nodes are never changed")
	}
	// Two nodes made from one do not share what they append to.
	one, two := full.With(plain("one", "x", gpu)), full.With(plain("two", "x", gpu))
	if one.Pods[3].Name != "one" || two.Pods[3].Name != "two" {
		t.Error("nodes made from one node share an array")
	}
}

// TestSharedCountsEqualFreshOnes makes random changes to a cluster. After each, every plugin must have the same results for the updated snapshot as for
// one built from scratch. There are more selectors, topology keys and values than are kept.
func TestSharedCountsEqualFreshOnes(t *testing.T) {
	t.Parallel()
	const seed, steps = 7, 400
	r := rand.New(rand.NewPCG(seed, seed))
	profile, err := scheduling.NewProfile(schedv1.KubeSchedulerProfile{})
	if err != nil {
		t.Fatal(err)
	}
	kept := scheduling.NewSnapshot(byApp{})
	for step := range steps {
		name := fmt.Sprint("node-", r.IntN(12))
		n := kept.Node(name)
		key := fmt.Sprint("key-", step%300) // rarely used ones have to go
		labels := map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprint("z", r.IntN(3)), key: fmt.Sprint("v", r.IntN(3)), "churn": fmt.Sprint(step)}
		var put []*scheduling.Node
		var removed []string
		pod := func() *scheduling.Pod {
			changes := []func(*corev1.Pod){}
			if r.IntN(2) == 0 {
				changes = append(changes, antiAffinity([]string{corev1.LabelHostname, corev1.LabelTopologyZone, key, "churn"}[r.IntN(4)]))
			}
			return plain(fmt.Sprint("pod-", step), fmt.Sprint("app-", r.IntN(4)), changes...)
		}
		switch {
		case n == nil:
			put = append(put, scheduling.NewNode(bare(name, labels), pod()))
		case r.IntN(10) == 0:
			removed = append(removed, name)
		case r.IntN(4) == 0:
			put = append(put, n.WithNode(bare(name, labels)))
		case r.IntN(3) == 0 && len(n.Pods) > 0:
			put = append(put, n.Without(n.Pods[r.IntN(len(n.Pods))].UID))
		default:
			put = append(put, n.With(pod()))
		}
		before := kept
		kept = kept.Update(put, removed)
		fresh := scheduling.NewSnapshot(byApp{})
		var nodes []*scheduling.Node
		for _, n := range kept.Nodes() {
			nodes = append(nodes, scheduling.NewNode(n.Node, n.Pods...))
		}
		fresh = fresh.Update(nodes, nil)
		asked := plain("asked", fmt.Sprint("app-", r.IntN(4)), antiAffinity(key))
		others := []*scheduling.Pod{plain("asked", fmt.Sprint("app-", r.IntN(400))), asked, plain("asked", "app-1", spreadOver(corev1.LabelTopologyZone)),
			plain("asked", fmt.Sprint("app-", step), spreadOver("churn"))}
		for _, pod := range others {
			if got, want := ask(profile, kept, pod), ask(profile, fresh, pod); got != want {
				t.Fatalf("step %d of seed %d: kept:\n%s\nfresh:\n%s", step, seed, got, want)
			}
			if step%10 == 0 {
				ask(profile, before, pod) // an older snapshot may be used in between
			}
		}
	}
}

// TestUnusedDomainsAreDropped gives a node more values of a label, one after the other, than are kept.
func TestUnusedDomainsAreDropped(t *testing.T) {
	t.Parallel()
	profile, err := scheduling.NewProfile(schedv1.KubeSchedulerProfile{})
	if err != nil {
		t.Fatal(err)
	}
	old := plain("old", "web", antiAffinity("rack"))
	s := scheduling.NewSnapshot(nil).Update([]*scheduling.Node{scheduling.NewNode(bare("a", nil), old), scheduling.NewNode(bare("b", map[string]string{"rack": "r"}), old)}, nil)
	for i := range 1300 {
		s = s.Update([]*scheduling.Node{s.Node("a").WithNode(bare("a", map[string]string{"rack": fmt.Sprint("r", i)}))}, nil)
		if got := strings.Count(ask(profile, s, plain("new", "web")), "existing pods"); got != 2 {
			t.Fatalf("after %d values: %d nodes keep the pod away, want 2", i, got)
		}
	}
}

// ask returns the results of all plugins, by node name.
func ask(p *scheduling.Profile, s *scheduling.Snapshot, pod *scheduling.Pod) string {
	var b strings.Builder
	nodes := slices.Clone(s.Nodes())
	slices.SortFunc(nodes, func(x, y *scheduling.Node) int { return strings.Compare(x.Name, y.Name) })
	for _, plugin := range p.Filters {
		prepared := plugin.PreFilter(pod, s)
		for _, n := range nodes {
			if prepared.Check != nil {
				fmt.Fprintf(&b, "%s %s %s\n", plugin.Name(), n.Name, prepared.Check.Filter(n).Message())
			}
		}
	}
	scores := make([]int64, len(nodes))
	for _, plugin := range p.Scores {
		if scorer, _ := plugin.PreScore(pod, s, nodes); scorer != nil {
			scorer.Score(nodes, scores)
			scorer.Normalize(nodes, scores)
			fmt.Fprintf(&b, "%s %v\n", plugin.Name(), scores)
		}
	}
	return b.String()
}

// TestConcurrentUseOfSnapshots is for the race detector: one goroutine updates while others use older snapshots.
func TestConcurrentUseOfSnapshots(t *testing.T) {
	t.Parallel()
	profile, err := scheduling.NewProfile(schedv1.KubeSchedulerProfile{})
	if err != nil {
		t.Fatal(err)
	}
	s := cluster(20, 2, byApp{})
	var wg sync.WaitGroup
	for i := range 60 {
		pod := plain(fmt.Sprint("p", i), fmt.Sprint("app-", i%5), antiAffinity(corev1.LabelHostname))
		s = s.Update([]*scheduling.Node{s.Nodes()[i%20].With(pod)}, nil)
		held := s
		wg.Go(func() { ask(profile, held, pod) })
	}
	wg.Wait()
}

func TestNewPodLeavesThePodAlone(t *testing.T) {
	t.Parallel()
	list := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Overhead: list("10Mi"), Resources: &corev1.ResourceRequirements{Requests: list("1.5Gi")}, Containers: []corev1.Container{{}}}}
	want := int64(1536+10) << 20
	for range 3 {
		if got := scheduling.NewPod(pod).Requests.Memory; got != want {
			t.Fatalf("asks for %d, want %d", got, want)
		}
	}
	if got := pod.Spec.Resources.Requests[corev1.ResourceMemory]; got.Cmp(resource.MustParse("1.5Gi")) != 0 {
		t.Errorf("the pod now asks for %s", got.String())
	}
}

// TestLocalPluginsDoNotDistinguishPodsOfOneSignature uses pods that differ only in what non-local plugins depend on.
func TestLocalPluginsDoNotDistinguishPodsOfOneSignature(t *testing.T) {
	t.Parallel()
	alike, different := 0, 0
	for seed := uint64(1); seed <= 300; seed++ {
		state := schedulingtest.New(seed)
		profile, err := scheduling.NewProfile(state.Profile)
		if err != nil {
			t.Fatal(err)
		}
		var nodes []*scheduling.Node
		for _, n := range state.Nodes {
			node := scheduling.NewNode(n)
			for _, p := range state.Pods {
				if p.Spec.NodeName == n.Name {
					node = node.With(scheduling.NewPod(p))
				}
			}
			nodes = append(nodes, node)
		}
		s := scheduling.NewSnapshot(nil).Update(nodes, nil)
		one, other := state.Incoming[0].Pod, state.Incoming[1].Pod.DeepCopy()
		if seed%3 != 0 {
			// The same but for what is not local.
			other = one.DeepCopy()
			other.Name, other.Namespace, other.Labels, other.OwnerReferences = "other", "elsewhere", map[string]string{"other": "yes"}, nil
			other.Spec.TopologySpreadConstraints = nil
			if other.Spec.Affinity != nil {
				other.Spec.Affinity.PodAffinity, other.Spec.Affinity.PodAntiAffinity = nil, nil
			}
		}
		a, b := scheduling.NewPod(one), scheduling.NewPod(other)
		if s.Signature(a) != s.Signature(b) {
			different++
			if seed%3 != 0 {
				t.Errorf("seed %d: not alike", seed)
			}
			continue
		}
		alike++
		if x, y := local(profile, s, a), local(profile, s, b); x != y {
			t.Errorf("seed %d: alike, but\n%s\n%s", seed, x, y)
		}
	}
	if alike < 100 || different < 50 {
		t.Errorf("%d alike and %d different prove little", alike, different)
	}
}

// local returns the results of checks and scorers that depend only on one node.
func local(p *scheduling.Profile, s *scheduling.Snapshot, pod *scheduling.Pod) string {
	var b strings.Builder
	for _, plugin := range p.Filters {
		prepared := plugin.PreFilter(pod, s)
		if _, adjustable := prepared.Check.(scheduling.Adjustable); prepared.Check == nil || adjustable {
			continue
		}
		for _, n := range s.Nodes() {
			fmt.Fprintf(&b, "%s %s %s\n", plugin.Name(), n.Name, prepared.Check.Filter(n).Message())
		}
	}
	scores := make([]int64, len(s.Nodes()))
	for _, plugin := range p.Scores {
		if scorer, _ := plugin.PreScore(pod, s, s.Nodes()); scorer != nil && scorer.Local() {
			scorer.Score(s.Nodes(), scores)
			fmt.Fprintf(&b, "%s %v\n", plugin.Name(), scores)
		}
	}
	return b.String()
}

func TestOnDaemonNode(t *testing.T) {
	t.Parallel()
	tolerates := corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	for name, c := range map[string]struct {
		spec          corev1.PodSpec
		taint         corev1.TaintEffect
		wanted, stays bool
	}{
		"any node":              {corev1.PodSpec{}, "", true, true},
		"this node by name":     {corev1.PodSpec{NodeName: "a"}, "", true, true},
		"another node by name":  {corev1.PodSpec{NodeName: "b"}, "", false, false},
		"selector that matches": {corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, "", true, true},
		"selector that doesn't": {corev1.PodSpec{NodeSelector: map[string]string{"disk": "hdd"}}, "", false, false},
		"NoSchedule":            {corev1.PodSpec{}, corev1.TaintEffectNoSchedule, false, true},
		"NoExecute":             {corev1.PodSpec{}, corev1.TaintEffectNoExecute, false, false},
		"PreferNoSchedule":      {corev1.PodSpec{}, corev1.TaintEffectPreferNoSchedule, true, true},
		"tolerated":             {tolerates, corev1.TaintEffectNoExecute, true, true},
	} {
		node := bare("a", map[string]string{"disk": "ssd"})
		if c.taint != "" {
			node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: c.taint}}
		}
		if wanted, stays := scheduling.OnDaemonNode(scheduling.NewPod(&corev1.Pod{Spec: c.spec}), node); wanted != c.wanted || stays != c.stays {
			t.Errorf("%s: wanted %t, stays %t", name, wanted, stays)
		}
	}
}
