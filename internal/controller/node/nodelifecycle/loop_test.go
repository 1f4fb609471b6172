package nodelifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/node"
	"skiff/internal/controller/stories"
	"skiff/test/seed"
)

func TestStories(t *testing.T) { stories.Run(t, New, stories.Options{}) }

// grace is the node monitor grace period of these tests.
const grace = time.Second

func fast(d controller.Deps) controller.Loop {
	d.Config = controller.Config{NodeMonitorPeriod: 0.05, NodeMonitorGracePeriod: controller.Seconds(grace.Seconds()), NodeEvictionRate: 1000}
	return New(d)
}

// cluster is a server with two nodes, of which b renews its lease, and a pod on each.
type cluster struct {
	*testing.T
	server *apitest.Server
}

func newCluster(t *testing.T) cluster {
	c := cluster{t, apitest.Start(t)}
	for _, name := range []string{"a", "b"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}}}
		if _, err := c.server.Client().CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		now := metav1.NowMicro()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &now}}
		if _, err := c.server.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod, err := c.server.Client().CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "on-" + name},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.ReportPhase(t, c.server, pod, corev1.PodRunning, "10.0.0.1")
	}
	c.keepAlive("b")
	return c
}

// keepAlive renews a lease until the test ends.
func (c cluster) keepAlive(name string) {
	done := make(chan struct{})
	c.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for c.Context().Err() == nil {
			patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
			_, err := c.server.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(c.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil && c.Context().Err() == nil {
				c.Error(err)
			}
			select {
			case <-c.Context().Done():
			case <-time.After(grace / 20):
			}
		}
	}()
}

func (c cluster) taints(name string) (keys []string) {
	n, err := c.server.Client().CoreV1().Nodes().Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for _, t := range n.Spec.Taints {
		keys = append(keys, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
		if t.TimeAdded == nil && t.Key != corev1.TaintNodeNotReady { // that one is the server's, on new nodes
			c.Errorf("when was %s added to %s?", t.Key, name)
		}
	}
	slices.Sort(keys)
	return keys
}

func (c cluster) ready(pod string) bool {
	p, err := c.server.Client().CoreV1().Pods("default").Get(c.Context(), pod, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return p.Status.Conditions[0].Status == corev1.ConditionTrue
}

func (c cluster) events(name string) (found []string) {
	list, err := c.server.Client().CoreV1().Events("").List(c.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		c.Fatal(err)
	}
	for _, e := range list.Items {
		found = append(found, e.Type+" "+e.Reason+": "+e.Message)
	}
	slices.Sort(found)
	return found
}

var gone = []string{"unreachable:NoExecute", "unreachable:NoSchedule"}

// A node becomes unreachable: its conditions are Unknown, it is tainted, its pods are not ready. It comes back: it is as before. All with the rights of the
// service account, while another node stays ready.
func TestSilentNode(t *testing.T) {
	c := newCluster(t)
	began := time.Now()
	controllertest.Run(t, c.server, fast)
	controllertest.Eventually(t, func() string {
		if got := c.taints("a"); !slices.Equal(got, gone) {
			return fmt.Sprintf("a tainted, has %v", got)
		}
		if c.ready("on-a") {
			return "its pod not ready"
		}
		return ""
	})
	if took := time.Since(began); took < grace {
		t.Errorf("a was called silent after %v already", took)
	}
	n, err := c.server.Client().CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kubeletConditions {
		if cond := node.Condition(n, kind); cond == nil || cond.Status != corev1.ConditionUnknown {
			t.Errorf("%s: %+v", kind, cond)
		}
	}
	if r := node.Ready(n); r.Reason != "NodeStatusUnknown" || r.Message != "Kubelet stopped posting node status." {
		t.Errorf("%+v", r)
	}
	controllertest.Eventually(t, func() string {
		if got := c.events("a"); !slices.Equal(got, []string{"Normal NodeNotReady: Node a status is now: NodeNotReady", "Normal RegisteredNode: Node a event: Registered Node a in Controller"}) {
			return fmt.Sprintf("events of a: %q", got)
		}
		if got := c.events("on-a"); !slices.Equal(got, []string{"Warning NodeNotReady: Node is not ready"}) {
			return fmt.Sprintf("events of its pod: %q", got)
		}
		return ""
	})
	c.keepAlive("a")
	patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`)
	if _, err := c.server.Client().CoreV1().Nodes().Patch(t.Context(), "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		if got := c.taints("a"); len(got) > 0 {
			return fmt.Sprintf("a without taints, has %v", got)
		}
		return ""
	})
	if got := c.taints("b"); len(got) > 0 || !c.ready("on-b") {
		t.Errorf("b lives, but has taints %v", got)
	}
}

// The loop is restarted at random moments, before, while and after it finds a node unreachable: in the end all is as it should be.
func TestRestarts(t *testing.T) {
	c := newCluster(t)
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 4 {
		stop := controllertest.Run(t, c.server, fast)
		<-time.After(grace - 200*time.Millisecond + time.Duration(random.IntN(400))*time.Millisecond)
		stop()
	}
	controllertest.Run(t, c.server, fast)
	controllertest.Eventually(t, func() string {
		if got := c.taints("a"); !slices.Equal(got, gone) || c.ready("on-a") {
			return fmt.Sprintf("a tainted, has %v", got)
		}
		if got := c.taints("b"); len(got) > 0 || !c.ready("on-b") {
			return fmt.Sprintf("b lives, but has taints %v", got)
		}
		return ""
	})
}

// Cordoned nodes and pressure conditions get taints.
func TestConditionsOnServer(t *testing.T) {
	c := newCluster(t)
	controllertest.Run(t, c.server, New)
	nodes := c.server.Client().CoreV1().Nodes()
	if _, err := nodes.Patch(t.Context(), "b", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"status":{"conditions":[{"type":"DiskPressure","status":"True"}]}}`)
	if _, err := nodes.Patch(t.Context(), "b", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		if got := c.taints("b"); !slices.Equal(got, []string{"disk-pressure:NoSchedule", "unschedulable:NoSchedule"}) {
			return fmt.Sprintf("the taints of b, not %v", got)
		}
		return ""
	})
}
