package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduler"
	"skiff/test/seed"
)

// A scheduler is restarted in the middle of its work, while another one binds pods and clients delete some. No node ever gets more pods than it has room for,
// and in the end every pod that there is room for is bound.
func TestStoppedAtRandom(t *testing.T) {
	seed := seed.New(t)
	r := rand.New(rand.NewPCG(seed, 1))
	c := newCluster(t)
	const nodes, room, pods = 10, 4, 60
	for i := range nodes {
		c.node(node(fmt.Sprint("n", i), fmt.Sprint(room)))
	}
	c.node(node("elsewhere", "1000", func(n *corev1.Node) { n.Spec.Unschedulable = true })) // where the other scheduler binds
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() { watchRoom(ctx, t, c, room) })

	var names []string
	gone := map[string]bool{}
	_, stop := start(t, c.Server, scheduler.Config{})
	for i := range pods {
		name := fmt.Sprint("p", i)
		names = append(names, name)
		c.pod(pod(name, "1"))
		switch r.IntN(6) {
		case 0: // the other scheduler binds a pod
			b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: "elsewhere"}}
			if err := c.Client().CoreV1().Pods("default").Bind(ctx, b, metav1.CreateOptions{}); err != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		case 1:
			victim := names[r.IntN(len(names))]
			if !gone[victim] {
				c.end(victim)
				gone[victim] = true
			}
		case 2:
			stop()
			_, stop = start(t, c.Server, scheduler.Config{})
		case 3:
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
		}
	}
	left := func() (waiting, on int) {
		list, err := c.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			switch p.Spec.NodeName {
			case "":
				waiting++
			case "elsewhere":
			default:
				on++
			}
		}
		return waiting, on
	}
	eventually(t, "all pods that fit are bound", func() bool {
		waiting, on := left()
		return waiting == 0 || on == nodes*room
	})
	cancel()
	others.Wait()
	list, err := c.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		for _, condition := range p.Status.Conditions {
			if p.Spec.NodeName != "" && condition.Type == corev1.PodScheduled && condition.Status != corev1.ConditionTrue {
				t.Errorf("%s is on %s, but its status says: %s", p.Name, p.Spec.NodeName, condition.Message)
			}
		}
	}
}

// A scheduler in another process continues when the API server is back.
func TestServerRestarts(t *testing.T) {
	c := newCluster(t)
	for i := range 5 {
		c.node(node(fmt.Sprint("n", i), "4"))
	}
	startAs(t, c.Remote("kube-scheduler", "system:kube-scheduler"), scheduler.Config{})
	for i := range 10 {
		c.pod(pod(fmt.Sprint("p", i), "1"))
	}
	c.Kill()
	c.Restart()
	eventually(t, "the test itself reaches the server again", func() bool {
		_, err := c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	for i := range 10 {
		c.pod(pod(fmt.Sprint("q", i), "1"))
	}
	on := map[string]int{}
	for i := range 10 {
		on[c.bound(fmt.Sprint("p", i))]++
		on[c.bound(fmt.Sprint("q", i))]++
	}
	for n, pods := range on {
		if pods > 4 {
			t.Errorf("there are %d pods on %s", pods, n)
		}
	}
}

// watchRoom watches the pods and fails if there are ever too many on a node.
func watchRoom(ctx context.Context, t *testing.T, c cluster, room int) {
	w, err := c.Client().CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	defer w.Stop()
	on := map[string]string{}
	count := map[string]int{}
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok {
				return
			}
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			before, now := on[p.Name], p.Spec.NodeName
			if e.Type == "DELETED" {
				now = ""
			} else if before != "" && before != now {
				t.Errorf("%s was bound twice, to %s and %s", p.Name, before, now)
			}
			count[before]--
			count[now]++
			on[p.Name] = now
			if now != "" && now != "elsewhere" && count[now] > room {
				t.Errorf("there are %d pods on %s", count[now], now)
			}
		}
	}
}

// Of two schedulers with leader election one works; when it stops, the other takes over.
func TestLeaderElection(t *testing.T) {
	c := newCluster(t)
	config, err := scheduler.LoadConfig([]byte(`{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration,
		leaderElection: {leaseDuration: 2s, renewDeadline: 900ms, retryPeriod: 100ms}}`))
	if err != nil {
		t.Fatal(err)
	}
	c.node(node("n1", "8"))
	first, stopFirst := start(t, c.Server, config)
	c.pod(pod("a", "1"))
	c.bound("a")
	second, stopSecond := start(t, c.Server, config)
	c.pod(pod("b", "1"))
	c.bound("b")
	eventually(t, "the first scheduler bound both pods, the second none", func() bool { return attempts(t, first) == 2 && attempts(t, second) == 0 })
	lease, err := c.Client().CoordinationV1().Leases("kube-system").Get(t.Context(), "kube-scheduler", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		t.Fatalf("the lease: %v, %v", lease, err)
	}
	stopFirst()
	c.pod(pod("c", "1"))
	c.bound("c")
	eventually(t, "the second scheduler bound the third", func() bool { return attempts(t, second) == 1 })
	stopSecond()
}

// attempts counts a scheduler's attempts.
func attempts(t *testing.T, s *scheduler.Scheduler) (n float64) {
	t.Helper()
	families, err := s.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "scheduler_schedule_attempts_total" {
			for _, m := range f.Metric {
				n += m.Counter.GetValue()
			}
		}
	}
	return n
}

// A scheduler that loses its lease to another ends with an error.
func TestLeaseLost(t *testing.T) {
	c := newCluster(t)
	config, err := scheduler.LoadConfig([]byte(`{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration,
		leaderElection: {leaseDuration: 2s, renewDeadline: 300ms, retryPeriod: 50ms}}`))
	if err != nil {
		t.Fatal(err)
	}
	c.node(node("n1", "8"))
	s, err := scheduler.New(scheduler.Options{Client: c.InProcess("kube-scheduler", "system:kube-scheduler", "system:authenticated"), Config: config})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	c.pod(pod("a", "1"))
	c.bound("a")
	taken := []byte(`{"spec":{"holderIdentity":"another","leaseDurationSeconds":3600}}`)
	if _, err := c.Client().CoordinationV1().Leases("kube-system").Patch(t.Context(), "kube-scheduler", types.MergePatchType, taken, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Errorf("it ended as if nothing had happened")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
	c.pod(pod("b", "1"))
	if n := c.get("b").Spec.NodeName; n != "" {
		t.Errorf("b was bound to %s", n)
	}
}
