package why

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/journey"
)

var update = flag.Bool("update", false, "write what is explained into the stories")

var storyTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// facts are those of a pod called web that a Deployment came to; change makes it the one a story is about.
func facts(change func(f *podFacts)) podFacts {
	at := func(d time.Duration) time.Time { return storyTime.Add(d) }
	ready := &journey.Node{Kind: journey.KindWork, Stage: journey.Pickup, UID: "pod-uid", Start: at(30 * time.Millisecond), Component: "kubelet"}
	scheduled := &journey.Node{Kind: journey.KindWork, Stage: journey.Schedule, UID: "pod-uid", Start: at(20 * time.Millisecond), Attributes: []journey.Attribute{
		{Key: "node", Value: "one"}, {Key: "attempt", Value: "1"}, {Key: "looked at", Value: "2 of 2 nodes"}, {Key: "node/one", Value: "score 99"}, {Key: "node/two", Value: "refused by NodePorts: node(s) didn't have free ports"}},
		Children: []*journey.Node{ready}}
	created := &journey.Node{Kind: journey.KindRequest, Stage: "create", Resource: "pods", Name: "web", UID: "pod-uid", Component: "replicaset-controller", Children: []*journey.Node{scheduled}}
	root := &journey.Node{Kind: journey.KindRequest, Stage: "create", Resource: "deployments.apps", Name: "web", UID: "d", Component: "kubectl", User: "ann", Start: storyTime, Children: []*journey.Node{created}}
	f := podFacts{tree: &journey.Tree{Whole: true, Roots: []*journey.Node{root}}, pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: types.UID("pod-uid"), CreationTimestamp: metav1.NewTime(storyTime)},
		Spec:       corev1.PodSpec{NodeName: "one", SchedulerName: "default-scheduler"},
		Status:     corev1.PodStatus{Phase: corev1.PodPending, StartTime: &metav1.Time{Time: storyTime}}}}
	change(&f)
	return f
}

func scheduleOf(f *podFacts) *journey.Node { return f.tree.Roots[0].Children[0].Children[0] }

// TestPods tells testdata/pods.txt: how pods are explained 90 seconds after they were created.
func TestPods(t *testing.T) {
	yes, no, grace := true, false, int64(30)
	stories := []struct {
		title  string
		change func(f *podFacts)
	}{
		{"A pod that is ready.", func(f *podFacts) {
			f.pod.Status.Phase = corev1.PodRunning
			f.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			f.tree.Ready = storyTime.Add(812 * time.Millisecond)
			f.events = []corev1.Event{{Type: "Warning", Reason: "FailedMount", Message: "it is over now", LastTimestamp: metav1.NewTime(storyTime)}}
		}},
		{"No node takes it.", func(f *podFacts) {
			f.pod.Spec.NodeName, f.pod.Status.StartTime = "", nil
			n := scheduleOf(f)
			n.Children, n.Error = nil, "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
			n.Attributes = []journey.Attribute{{Key: "attempt", Value: "3"}, {Key: "node/one", Value: "refused by NodeResourcesFit: Insufficient cpu"}, {Key: "node/two", Value: "refused by TaintToleration: node(s) had untolerated taint(s)"},
				{Key: "also refused", Value: "7 more nodes"}}
			f.events = []corev1.Event{{Type: "Warning", Reason: "FailedScheduling", Message: "told above"}}
		}},
		{"It waits for others to make room.", func(f *podFacts) {
			f.pod.Spec.NodeName, f.pod.Status.StartTime, f.pod.Status.NominatedNodeName = "", nil, "two"
			scheduleOf(f).Error = "0/2 nodes are available: 2 Insufficient cpu."
		}},
		{"No scheduler looks at it.", func(f *podFacts) {
			f.pod.Spec.NodeName, f.pod.Status.StartTime, f.pod.Spec.SchedulerName = "", nil, "mine"
			f.tree.Roots[0].Children[0].Children = nil
		}},
		{"It has a gate.", func(f *podFacts) {
			f.pod.Spec.NodeName, f.pod.Status.StartTime = "", nil
			f.pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/budget"}}
		}},
		{"The kubelet has not heard of it.", func(f *podFacts) {
			f.pod.Status.StartTime = nil
			scheduleOf(f).Children = nil
		}},
		{"Its image cannot be had.", func(f *podFacts) {
			f.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Started: &no, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: "Back-off pulling image \"ngnix\""}}}}
			n := scheduleOf(f)
			for i, failure := range []string{"", "not found", "not found"} {
				n.Children = append(n.Children, &journey.Node{Kind: journey.KindWork, Stage: []string{journey.Sandbox, journey.Image, journey.Image}[i], UID: "pod-uid", Error: failure,
					Start: storyTime.Add(time.Duration(i+1) * time.Second), Attributes: []journey.Attribute{{Key: "container", Value: []string{"", "web", "web"}[i]}}})
			}
			f.events = []corev1.Event{{Type: "Warning", Reason: "Failed", Message: "Error: ErrImagePull", LastTimestamp: metav1.NewTime(storyTime.Add(80 * time.Second))}, {Type: "Normal", Reason: "Pulling"}}
		}},
		{"It crashes.", func(f *podFacts) {
			f.pod.Status.Phase = corev1.PodRunning
			f.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", RestartCount: 4, Started: &no,
				State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}}}
		}},
		{"Its probes do not succeed.", func(f *podFacts) {
			f.pod.Status.Phase = corev1.PodRunning
			running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			f.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Started: &yes, State: running}, {Name: "slow", Started: &no, State: running}}
			f.pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/in-pool"}}
		}},
		{"It was made for its node.", func(f *podFacts) { f.tree.Roots[0].Children[0].Children = nil }},
		{"It failed.", func(f *podFacts) {
			f.pod.Status.Phase, f.pod.Status.Reason, f.pod.Status.Message = corev1.PodFailed, "Evicted", "The node was low on memory"
			f.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "\x1b[2Jescape"}}}}
		}},
		{"It is ending.", func(f *podFacts) {
			f.pod.DeletionTimestamp, f.pod.DeletionGracePeriodSeconds, f.pod.Finalizers = &metav1.Time{Time: storyTime.Add(100 * time.Second)}, &grace, []string{"example.com/wait"}
			f.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}},
		{"Nothing is remembered of how it came to be.", func(f *podFacts) { f.tree = &journey.Tree{} }},
	}
	var out strings.Builder
	for _, s := range stories {
		out.WriteString("# " + s.title + "\n")
		for _, line := range facts(s.change).explain(storyTime.Add(90 * time.Second)) {
			out.WriteString(journey.Printable(line) + "\n")
		}
		out.WriteString("\n")
	}
	const file = "testdata/pods.txt"
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
