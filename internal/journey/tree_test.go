package journey

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write what is drawn into testdata")

// fakeCluster records requests and spans of a cluster, at times of the test's choosing.
type fakeCluster struct {
	*clock
	*Recorder
	revision int64
}

func newFakeCluster() *fakeCluster {
	c := newClock()
	return &fakeCluster{clock: c, Recorder: New(Options{Capacity: 256, Now: c.Now})}
}

// request records a request to write an object, which takes 3 ms, and returns the version that it made.
func (c *fakeCluster) request(who, verb, resource, name, uid string, within SpanContext, because ...Cause) Cause {
	h := http.Header{"User-Agent": {who + "/v1"}}
	if len(because) > 0 {
		h.Set(HeaderCause, FormatCauses(because))
	}
	if !within.IsZero() {
		h.Set(HeaderTraceparent, within.Traceparent())
	}
	t := c.Begin(h, verb, resource, "shop", name)
	t.Stage(Authentication)
	c.Advance(time.Millisecond)
	t.By(who + "-user")
	t.Stage("store")
	c.Advance(2 * time.Millisecond)
	c.revision++
	t.Wrote(strings.Split(resource, "/")[0], uid, c.revision)
	c.Delivered(uid, c.revision)
	t.End(201)
	return Cause{uid, c.revision}
}

// work records a span of a component for a version of an object.
func (c *fakeCluster) work(who, stage string, took time.Duration, within SpanContext, because Cause, attributes ...Attribute) SpanContext {
	s := Span{SpanContext: NewSpanContext(within), Parent: within.Span, Component: who, Stage: stage, Start: c.Now(), Duration: took,
		Causes: []Cause{because}, Attributes: attributes}
	c.Advance(took)
	c.PutSpan(s)
	return s.SpanContext
}

const (
	podA = "0d9c2c9e-58c3-4a3a-9d6a-00000000000a"
	podB = "0d9c2c9e-58c3-4a3a-9d6a-00000000000b"
)

var alone SpanContext

// rollout records a Deployment with two pods, of which the second is slower.
func rollout(c *fakeCluster) {
	d := c.request("kubectl", "create", "deployments.apps", "web", deploymentUID, alone)
	c.Advance(time.Millisecond)
	decided := c.work("deployment-controller", Decide, 0, alone, d, Attribute{"key", "shop/web"}, Attribute{"create ReplicaSet", "1"})
	rs := c.request("deployment-controller", "create", "replicasets.apps", "web-1", replicaSetUID, decided, d)
	c.Advance(time.Millisecond)
	decided = c.work("replicaset-controller", Decide, 0, alone, rs, Attribute{"key", "shop/web-1"}, Attribute{"create Pod", "2"})
	a := c.request("replicaset-controller", "create", "pods", "web-1-a", podA, decided, rs)
	b := c.request("replicaset-controller", "create", "pods", "web-1-b", podB, decided, rs)
	for _, p := range []struct {
		Cause
		name string
		pull time.Duration
	}{{a, "web-1-a", 20 * time.Millisecond}, {b, "web-1-b", 300 * time.Millisecond}} {
		scheduled := c.work("kube-scheduler", Schedule, time.Millisecond, alone, p.Cause, Attribute{"node", "one"}, Attribute{"attempt", "1"},
			Attribute{"looked at", "2 of 2 nodes"}, Attribute{AboutNode + "one", "score 90"}, Attribute{AboutNode + "two", "refused by NodePorts: node(s) didn't have free ports"})
		bound := c.request("kube-scheduler", "create", "pods/binding", p.name, p.UID, scheduled, p.Cause)
		c.work("kubelet", Pickup, time.Millisecond, alone, bound)
		reported := c.request("kubelet", "patch", "pods/status", p.name, p.UID, alone, bound)
		begun := c.Now()
		c.work("kubelet", Image, p.pull, alone, bound, Attribute{"image", "nginx"})
		// The sandbox is made meanwhile.
		c.PutSpan(Span{SpanContext: NewSpanContext(alone), Component: "kubelet", Stage: Sandbox, Start: begun, Duration: 10 * time.Millisecond, Causes: []Cause{bound}})
		c.work("kubelet", Start, 5*time.Millisecond, alone, bound, Attribute{"container", "web"})
		// Its readiness is told with the version that says so.
		begun = c.Now()
		ready := c.request("kubelet", "patch", "pods/status", p.name, p.UID, alone, reported)
		c.PutSpan(Span{SpanContext: NewSpanContext(alone), Component: "kubelet", Stage: Ready, Start: begun.Add(-time.Microsecond), Duration: 3 * time.Millisecond, Causes: []Cause{ready}})
	}
	c.Advance(time.Minute)
	c.request("kubelet", "patch", "pods/status", "web-1-a", podA, alone, Cause{podA, c.revision})
	scaled := c.request("kubectl", "patch", "deployments.apps/scale", "web", deploymentUID, alone)
	c.work("deployment-controller", Decide, time.Millisecond, alone, scaled, Attribute{"key", "shop/web"}, Attribute{"update ReplicaSet", "1"})
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", file, got, want)
	}
}

// drawn returns a tree as it is drawn after it was encoded and decoded.
func drawn(t *testing.T, tree *Tree, o DrawOptions) string {
	t.Helper()
	body, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var read Tree
	if err := json.Unmarshal(body, &read); err != nil {
		t.Fatal(err)
	}
	for _, r := range read.Roots { // whatever zone the test is run in
		r.Walk(func(n *Node, _ int) { n.Start = n.Start.In(time.Local) })
	}
	var out bytes.Buffer
	if err := read.Draw(&out, o); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, r := range read.Roots {
		text = strings.ReplaceAll(text, r.Start.Local().Format("2006-01-02 15:04:05.000"), fmt.Sprintf("(%.1f s after the beginning)", r.Start.Sub(read.Roots[0].Start).Seconds()))
	}
	return text
}

func TestDraw(t *testing.T) {
	c := newFakeCluster()
	rollout(c)
	golden(t, "deployment.txt", drawn(t, c.Tree(deploymentUID), DrawOptions{}))
	golden(t, "pod.txt", drawn(t, c.Tree(podA), DrawOptions{}))
	golden(t, "all.txt", drawn(t, c.Tree(podA), DrawOptions{Later: true, Stages: true}))
	golden(t, "nothing.txt", drawn(t, c.Tree("nobody"), DrawOptions{}))
}

// Every node is in the tree once, and begins no earlier than its parent.
func TestTreeIsATree(t *testing.T) {
	c := newFakeCluster()
	rollout(c)
	tree := c.Tree(deploymentUID)
	if !tree.Whole || tree.Name != "web" || tree.Namespace != "shop" || tree.Resource != "deployments.apps" {
		t.Errorf("%+v", tree)
	}
	seen := map[SpanID]bool{}
	for _, root := range tree.Roots {
		root.Walk(func(n *Node, _ int) {
			if n.Kind != KindStage && seen[n.ID] {
				t.Errorf("%s of %s is there twice", n.Stage, n.Name)
			}
			seen[n.ID] = true
			for _, child := range n.Children {
				if child.Start.Before(n.Start) || child.Until.After(n.Until) {
					t.Errorf("%s of %s is not within %s of %s", child.Stage, child.Name, n.Stage, n.Name)
				}
			}
		})
	}
	if want := len(c.Spans()) + len(c.Snapshot()); len(seen)-1 != want { // stages have no id
		t.Errorf("%d nodes of %d are in the tree", len(seen)-1, want)
	}
}

// Cyclic causes, which wrong clocks or wrong senders can make, still give a tree.
func TestCyclicCauses(t *testing.T) {
	r := New(Options{Capacity: 16})
	a, b := NewSpanContext(alone), NewSpanContext(alone)
	now := time.Now()
	r.PutSpan(Span{SpanContext: a, Parent: b.Span, Component: "x", Stage: "a", Start: now, Causes: []Cause{{"uid", 1}}})
	r.PutSpan(Span{SpanContext: b, Parent: a.Span, Component: "x", Stage: "b", Start: now, Causes: []Cause{{"uid", 1}}})
	r.PutSpan(Span{SpanContext: SpanContext{a.Trace, newSpanID()}, Component: "x", Stage: "c", Start: now, Causes: []Cause{{"uid", 1}}})
	own := NewSpanContext(alone)
	r.PutSpan(Span{SpanContext: own, Parent: own.Span, Component: "x", Stage: "d", Start: now, Causes: []Cause{{"uid", 1}}})
	n := 0
	for _, root := range r.Tree("uid").Roots {
		root.Walk(func(*Node, int) { n++ })
	}
	if n != 4 {
		t.Errorf("%d of 4 nodes are in the tree", n)
	}
}

// Work caused by two pods does not make the other pod's journey part of the tree. What the other pod caused on this one does.
func TestSiblings(t *testing.T) {
	c := newFakeCluster()
	rs := c.request("kubectl", "create", "replicasets.apps", "web", replicaSetUID, alone)
	decided := c.work("replicaset-controller", Decide, 0, alone, rs)
	a := c.request("replicaset-controller", "create", "pods", "a", podA, decided, rs)
	b := c.request("replicaset-controller", "create", "pods", "b", podB, decided, rs)
	c.PutSpan(Span{SpanContext: NewSpanContext(alone), Component: "replicaset-controller", Stage: Decide, Start: c.Now(), Causes: []Cause{a, b}})
	told := func() map[string]bool {
		found := map[string]bool{}
		for _, root := range c.Tree(podA).Roots {
			root.Walk(func(n *Node, _ int) { found[n.Stage+" "+n.Name] = true })
		}
		return found
	}
	if found := told(); !found["create web"] || !found["create a"] || found["create b"] {
		t.Errorf("of the first: %v", found)
	}
	c.request("kube-scheduler", "delete", "pods", "a", podA, alone, b)
	if found := told(); !found["delete a"] || !found["create b"] {
		t.Errorf("of the first, which made room for the second: %v", found)
	}
}

// A kubelet may have a pod ready before the scheduler's binding request has returned. The binding is on the critical path nevertheless.
func TestCauseThatEndsLater(t *testing.T) {
	c := newFakeCluster()
	pod := c.request("kubectl", "create", "pods", "web", podA, alone)
	scheduled := c.work("kube-scheduler", Schedule, time.Millisecond, alone, pod)
	binding, begun := NewSpanContext(scheduled), c.Now()
	bound := c.request("kube-scheduler", "create", "pods/binding", "web", podA, binding, pod)
	c.work("kubelet", Ready, time.Millisecond, alone, bound)
	c.PutSpan(Span{SpanContext: binding, Parent: scheduled.Span, Component: "kube-scheduler", Stage: Bind, Start: begun, Duration: c.Now().Sub(begun) + time.Second, Causes: []Cause{pod}})
	critical := map[string]bool{}
	c.Tree(podA).Roots[0].Walk(func(n *Node, _ int) { critical[n.Stage+" "+n.Resource] = n.Critical })
	for _, what := range []string{Schedule + " pods", Bind + " pods", "create pods/binding", Ready + " pods"} {
		if !critical[what] {
			t.Errorf("%q is not on the critical path: %v", what, critical)
		}
	}
}

// A deleted object is found by its name.
func TestLast(t *testing.T) {
	c := newFakeCluster()
	c.request("kubectl", "create", "pods", "web", podA, alone)
	c.request("kubectl", "delete", "pods", "web", podA, alone)
	c.request("kubectl", "create", "pods", "web", podB, alone)
	c.request("kubelet", "patch", "pods/status", "web", podB, alone)
	c.request("kubectl", "create", "services", "web", "service", alone)
	if got := c.Last("pods", "shop", "web"); got != podB {
		t.Errorf("the last pod called web is %s", got)
	}
	if got := c.Last("pods", "shop", "other"); got != "" {
		t.Errorf("a pod nobody made is %s", got)
	}
}

func BenchmarkTree(b *testing.B) {
	r := New(Options{})
	c := &fakeCluster{clock: newClock(), Recorder: r}
	for range 400 {
		rollout(c)
	}
	for b.Loop() {
		r.Tree(deploymentUID)
	}
}
