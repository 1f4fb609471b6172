package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/journey"
	"skiff/internal/scheduler"
)

// start runs a scheduler, with exactly the rights of kube-scheduler, until the test ends or stop is called.
func start(t testing.TB, server *apitest.Server, config scheduler.Config) (s *scheduler.Scheduler, stop func()) {
	t.Helper()
	return startAs(t, server.InProcess("kube-scheduler", "system:kube-scheduler", "system:authenticated"), config)
}

func startAs(t testing.TB, c *client.Client, config scheduler.Config) (s *scheduler.Scheduler, stop func()) {
	t.Helper()
	s, err := scheduler.New(scheduler.Options{Client: c, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return s, stop
}

func load(t testing.TB, yaml string) scheduler.Config {
	t.Helper()
	c, err := scheduler.LoadConfig([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: false}\n" + yaml))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func node(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("32Gi"), "pods": resource.MustParse("110")}
	n.Status.Capacity = n.Status.Allocatable
	for _, c := range change {
		c(n)
	}
	return n
}

func pod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// cluster is a server with helpers for tests.
type cluster struct {
	t testing.TB
	*apitest.Server
}

// newCluster starts a server without the admission plugin that taints new nodes as not ready: no node controller runs here that would remove the taint.
func newCluster(t testing.TB, options ...apitest.Option) cluster {
	t.Helper()
	c := cluster{t, apitest.Start(t, append(options, apitest.WithServer(func(o *apiserver.Options) {
		o.DisableAdmission = append(o.DisableAdmission, "TaintNodesByCondition")
		o.Journey = journey.New(journey.Options{})
	}))...)}
	as := c.InProcess("kube-scheduler", "system:kube-scheduler", "system:authenticated").Kubernetes()
	eventually(t, "the roles are there", func() bool {
		_, err := as.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
		return err == nil
	})
	return c
}

func (c cluster) node(n *corev1.Node) {
	c.t.Helper()
	if _, err := c.Client().CoreV1().Nodes().Create(context.Background(), n, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c cluster) pod(p *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	made, err := c.Client().CoreV1().Pods("default").Create(context.Background(), p, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

func (c cluster) get(name string) *corev1.Pod {
	c.t.Helper()
	p, err := c.Client().CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// bound waits until a pod is bound and returns its node.
func (c cluster) bound(name string) (node string) {
	c.t.Helper()
	eventually(c.t, name+" is bound", func() bool {
		node = c.get(name).Spec.NodeName
		return node != ""
	})
	return node
}

// sees waits until a scheduler has observed that many nodes, by having it schedule temporary pods.
func (c cluster) sees(nodes int) {
	c.t.Helper()
	for i := 0; ; i++ {
		name := fmt.Sprint("probe", i)
		c.pod(pod(name, ""))
		c.bound(name)
		seen := c.attempts(name)[0].Attribute("looked at")
		c.end(name)
		if strings.HasSuffix(seen, fmt.Sprintf(" of %d nodes", nodes)) {
			return
		}
	}
}

// attempts returns the scheduling attempts in a pod's journey, in order.
func (c cluster) attempts(name string) (list []*journey.Node) {
	c.t.Helper()
	body, err := c.Client().CoreV1().RESTClient().Get().AbsPath(journey.PathJourney).Param("resource", "pods").Param("namespace", "default").
		Param("name", name).DoRaw(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	tree := &journey.Tree{}
	if err := json.Unmarshal(body, tree); err != nil {
		c.t.Fatal(err)
	}
	var gather func([]*journey.Node)
	gather = func(nodes []*journey.Node) {
		for _, n := range nodes {
			if n.Stage == journey.Schedule {
				list = append(list, n)
			}
			gather(n.Children)
		}
	}
	gather(tree.Roots)
	slices.SortFunc(list, func(a, b *journey.Node) int { return a.Start.Compare(b.Start) })
	return list
}

// refused waits until a pod is unschedulable and returns the message.
func (c cluster) refused(name, message string) {
	c.t.Helper()
	var last string
	deadline := time.Now().Add(20 * time.Second)
	for {
		for _, condition := range c.get(name).Status.Conditions {
			if condition.Type == corev1.PodScheduled {
				last = fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
			}
		}
		if last == "False Unschedulable: "+message {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s is to be refused with\n%s\nbut it is\n%s", name, message, last)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// event waits for an Event about a pod.
func (c cluster) event(name, want string) {
	c.t.Helper()
	var seen []string
	deadline := time.Now().Add(20 * time.Second)
	for {
		list, err := c.Client().EventsV1().Events("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		seen = nil
		for _, e := range list.Items {
			if e.Regarding.Name == name {
				seen = append(seen, maxListed(&e))
			}
		}
		if slices.Contains(seen, want) {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("there is no event %q of %s, only %q", want, name, seen)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func maxListed(e *eventsv1.Event) string {
	return strings.Join([]string{e.Type, e.Reason, e.Action, e.ReportingController, e.Note}, " ")
}

func (c cluster) patchNode(name, patch string) {
	c.t.Helper()
	if _, err := c.Client().CoreV1().Nodes().Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// end deletes a pod as its kubelet does when it has stopped.
func (c cluster) end(name string) {
	c.t.Helper()
	now := int64(0)
	if err := c.Client().CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		c.t.Fatal(err)
	}
}
