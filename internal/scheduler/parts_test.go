package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"skiff/internal/scheduling"
)

// A repeated Event is counted, not created again; when a series has ended, its last count is written.
func TestEventSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		var wrote []string
		api.PrependReactor("*", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
			switch a := a.(type) {
			case clienttesting.CreateAction:
				wrote = append(wrote, "create "+a.GetObject().(*eventsv1.Event).Note)
			case clienttesting.PatchAction:
				wrote = append(wrote, "patch "+string(a.GetPatch()))
			}
			return true, &eventsv1.Event{}, nil
		})
		r := newRecorder(api, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.run(ctx); close(done) }()
		pod := podOf("web", nil)
		say := func(note string) {
			r.event(pod, nil, "default-scheduler", "Warning", "FailedScheduling", "Scheduling", note)
			synctest.Wait()
		}
		say("first")
		say("second")
		say("third")
		pod = pod.DeepCopy()
		pod.ResourceVersion += "0" // another version is another object
		say(strings.Repeat("x", 2000))
		time.Sleep(20 * time.Minute)
		cancel()
		<-done
		want := []string{"create first", `patch {"series":{"count":2`, "create " + strings.Repeat("x", maxNote-4) + " ...", `patch {"series":{"count":3`}
		if len(wrote) != len(want) {
			t.Fatalf("written were %q", wrote)
		}
		for i := range want {
			if !strings.HasPrefix(wrote[i], want[i]) {
				t.Errorf("written was %q, not %q", wrote[i], want[i])
			}
		}
		if len(r.series) != 0 {
			t.Errorf("%d series are remembered", len(r.series))
		}
	})
}

// Events that exceed the queue are dropped; nothing blocks.
func TestEventsNeverWait(t *testing.T) {
	r := newRecorder(fake.NewClientset(), slog.New(slog.DiscardHandler))
	pod := podOf("web", nil)
	for range maxQueuedEvents + 10 { // nobody writes them
		r.event(pod, nil, "default-scheduler", "Normal", "Scheduled", "Binding", "")
	}
	if n := r.dropped.Load(); n != 10 {
		t.Errorf("%d were dropped", n)
	}
}

// Of the changes of a pod's status only the last counts, one write follows the other, and after cancel nothing is written.
func TestStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStatuses()
		pod := podOf("web", nil)
		node := "n1"
		s.put(statusChange{pod: pod, condition: &corev1.PodCondition{Message: "first"}, nominated: &node})
		s.put(statusChange{pod: pod, condition: &corev1.PodCondition{Message: "second"}})
		c, _ := s.next()
		if c.condition.Message != "second" || c.nominated != &node {
			t.Errorf("written is %+v", c)
		}
		s.put(statusChange{pod: pod, condition: &corev1.PodCondition{Message: "third"}})
		var settled atomic.Bool
		go func() {
			s.cancel(pod.UID)
			settled.Store(true)
		}()
		synctest.Wait()
		if settled.Load() {
			t.Errorf("a pod is said to be settled while it is being written")
		}
		s.done(pod.UID)
		synctest.Wait()
		if !settled.Load() {
			t.Errorf("a pod is never settled")
		}
		other := podOf("other", nil)
		s.put(statusChange{pod: other})
		if c, _ := s.next(); c.pod != other {
			t.Errorf("written is %+v of a pod that is settled", c)
		}
		s.close()
		if _, ok := s.next(); ok {
			t.Errorf("there is something to write after the end")
		}
	})
}

func TestChangedCondition(t *testing.T) {
	status := &corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no"}}}
	for _, test := range []struct {
		c       corev1.PodCondition
		changed bool
	}{
		{corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no"}, false},
		{corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "still no"}, true},
		{corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}, true},
	} {
		got, changed := changedCondition(status, test.c)
		if changed != test.changed || got.Type == corev1.PodScheduled && !got.LastTransitionTime.IsZero() {
			t.Errorf("%+v: %v, %+v", test.c, changed, got)
		}
	}
}

// Pods may be observed before their node, and stay after it was deleted.
func TestPodsWithoutNode(t *testing.T) {
	c := newCluster(nil)
	pod := scheduling.NewPod(podOf("early", map[string]string{"node": "n1", "cpu": "1"}))
	c.putPod(pod)
	if s, _ := c.snapshot(); len(s.Nodes()) != 0 {
		t.Errorf("there are nodes: %v", s.Nodes())
	}
	c.putNode(nodeOf("n1", map[string]string{}))
	s, order := c.snapshot()
	if n := s.Node("n1"); n == nil || n.Requested.MilliCPU != 1000 || order.position["n1"] != 0 {
		t.Fatalf("the node is %+v", n)
	}
	before := s
	c.removeNode("n1")
	if s, _ = c.snapshot(); s.Node("n1") != nil || before.Node("n1") == nil {
		t.Errorf("the node is not gone, or is from a snapshot that was taken before")
	}
	c.putNode(nodeOf("n1", map[string]string{}))
	if s, _ = c.snapshot(); s.Node("n1").Requested.MilliCPU != 1000 {
		t.Errorf("its pods were forgotten")
	}
	c.removeNode("n1")
	c.removePod(pod.UID)
	if len(c.nodes) != 0 || len(c.pods) != 0 {
		t.Errorf("something is left: %v %v", c.nodes, c.pods)
	}
}

// An assumed pod counts at once, is forgotten when its binding fails, and is an ordinary pod once it was observed. A change of a pod or a node that makes no
// difference keeps the node object the same.
func TestAssume(t *testing.T) {
	c := newCluster(nil)
	defer c.close()
	c.putNode(nodeOf("n1", map[string]string{}))
	cpu := func() int64 {
		s, _ := c.snapshot()
		return s.Node("n1").Requested.MilliCPU
	}
	pod := scheduling.NewPod(podOf("web", map[string]string{"node": "n1", "cpu": "1"}))
	if err := c.assume(pod); err != nil || cpu() != 1000 || !c.isAssumed(pod.UID) {
		t.Fatalf("assumed: %v, %d", err, cpu())
	}
	if err := c.assume(pod); err == nil {
		t.Errorf("it was assumed twice")
	}
	if _, ok := c.forget(pod.UID); !ok || cpu() != 0 {
		t.Errorf("forgotten: %v, %d", ok, cpu())
	}
	if err := c.assume(pod); err != nil {
		t.Fatal(err)
	}
	s, _ := c.snapshot()
	node := s.Node("n1")
	shown := pod.Pod.DeepCopy()
	shown.Status.Phase = corev1.PodRunning
	if old := c.putPod(scheduling.NewPod(shown)); old != nil || c.isAssumed(pod.UID) {
		t.Errorf("the API showed it, but it is still assumed")
	}
	if _, ok := c.forget(pod.UID); ok {
		t.Errorf("a pod that the API shows was forgotten")
	}
	c.putNode(node.Node.DeepCopy())
	if s, _ = c.snapshot(); s.Node("n1") != node {
		t.Errorf("the node is another, though nothing about it changed that matters")
	}
	if got := c.pod(pod.UID); got.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is known as %s", got.Status.Phase)
	}
	c.refreshSome() // after a while the node holds the new version of the pod, and is another object
	if s, _ = c.snapshot(); s.Node("n1") == node || s.Node("n1").Pods[0].Status.Phase != corev1.PodRunning || s.Node("n1").Requested.MilliCPU != 1000 {
		t.Errorf("the node has the pod in a form that is long gone")
	}
	node = s.Node("n1")
	ending := shown.DeepCopy()
	ending.DeletionTimestamp = &ending.CreationTimestamp
	c.putPod(scheduling.NewPod(ending))
	if s, _ = c.snapshot(); s.Node("n1") == node {
		t.Errorf("the node is the same, though a pod on it is ending")
	}
}

// The result cache is bounded, and unused entries expire.
func TestMemoryIsBounded(t *testing.T) {
	profiles, _ := defaultProfiles(t, nil)
	profile := profiles[defaultSchedulerName]
	c := newCluster(nil)
	for i := range 10000 {
		c.putNode(benchmarkNode(i))
	}
	v := view{}
	v.snapshot, v.order = c.snapshot()
	cycle := &cycle{}
	for i := range 30 {
		pod := benchmarkPod(i, nil)
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: fmt.Sprintf("node-%05d", i)}
		if out, err := cycle.decide(profile, scheduling.NewPod(pod), v); err != nil || out.node.Name != fmt.Sprintf("node-%05d", i) {
			t.Fatalf("%v %v", out.message(), err)
		}
	}
	if n := cycle.results.nodes; n > maxCachedNodes || n < maxCachedNodes/2 {
		t.Errorf("%d nodes are remembered", n)
	}
	cycle.results.expire(time.Now().Add(cacheTTL / 2))
	if cycle.results.nodes == 0 {
		t.Errorf("memory fades too soon")
	}
	cycle.results.expire(time.Now().Add(2 * cacheTTL))
	if cycle.results.nodes != 0 || len(cycle.results.entries) != 0 {
		t.Errorf("the result cache does not expire entries: %d nodes", cycle.results.nodes)
	}
}

// A pod of which only the status changed need not be parsed again; one that changed in another way must be.
func TestReparsed(t *testing.T) {
	pod := podOf("web", map[string]string{"cpu": "1"})
	pod.Generation = 1
	known := scheduling.NewPod(pod)
	running := pod.DeepCopy()
	running.Status.Phase, running.Labels = corev1.PodRunning, map[string]string{"a": "b"}
	if got := reparsed(known, running); got.Pod != running || got.Requests.MilliCPU != 1000 || known.Pod != pod {
		t.Errorf("%+v", got)
	}
	larger := podOf("web", map[string]string{"cpu": "2"})
	larger.Generation = 2
	resized := pod.DeepCopy()
	resized.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: amounts(map[string]string{"cpu": "2"})}}
	for _, changed := range []*corev1.Pod{larger, resized} {
		if got := reparsed(known, changed); got.Requests.MilliCPU != 2000 {
			t.Errorf("%+v", got.Requests)
		}
	}
	if got := reparsed(nil, pod); got.Requests.MilliCPU != 1000 {
		t.Errorf("%+v", got)
	}
}
