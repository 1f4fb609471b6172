package podgc

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, func(deps controller.Deps) controller.Loop {
		c := &collector{pods: deps.Informers.Core().V1().Pods().Lister(), nodes: deps.Informers.Core().V1().Nodes().Lister()}
		return controller.Loop{Reconcile: func(key controller.Key, now time.Time) (d controller.Decision) {
			seen := c.observe()
			seen.threshold, _ = strconv.Atoi(key.Name)
			seen.missingNodes = map[string]bool{}
			for _, pod := range seen.pods {
				if name := pod.Spec.NodeName; name != "" && seen.nodes[name] == nil {
					seen.missingNodes[name] = true
				}
			}
			deletions := decide(seen, now)
			slices.SortStableFunc(deletions, func(a, b deletion) int { return evictedThenOldest(a.pod, b.pod) })
			for _, pod := range deletions {
				d.Actions = append(d.Actions, pod.actions...)
			}
			return d
		}}
	}, stories.Options{Show: func(a controller.Action) string {
		if _, subresource, pod, ok := controller.Written(a); ok && subresource == "status" {
			return "was: " + string(pod.(*corev1.Pod).Status.Phase)
		}
		return ""
	}})
}

// The API is asked about a node only after it has been missing for the quarantine, and again only after as long.
func TestQuarantine(t *testing.T) {
	c := &collector{quarantine: 40 * time.Second, missingSince: map[string]time.Time{}}
	at := func(second int, nodes ...string) []string {
		seen := observed{nodes: map[string]*corev1.Node{}}
		for _, name := range []string{"a", "b", "a"} {
			seen.pods = append(seen.pods, &corev1.Pod{Spec: corev1.PodSpec{NodeName: name}})
		}
		seen.pods = append(seen.pods, &corev1.Pod{})
		for _, name := range nodes {
			seen.nodes[name] = &corev1.Node{}
		}
		return c.due(seen, stories.Epoch.Add(time.Duration(second)*time.Second))
	}
	for _, step := range []struct {
		second int
		nodes  []string
		due    []string
	}{
		{0, []string{"b"}, nil},
		{20, nil, nil},
		{40, nil, []string{"a"}}, // b is missing for only 20 s
		{60, nil, []string{"b"}},
		{70, nil, nil},
		{80, nil, []string{"a"}},
		{90, []string{"a", "b"}, nil}, // both are back
		{100, nil, nil},               // missing again: the quarantine starts anew
		{139, nil, nil},
		{140, nil, []string{"a", "b"}},
	} {
		if due := at(step.second, step.nodes...); !slices.Equal(due, step.due) {
			t.Errorf("at %d s: %v, not %v", step.second, due, step.due)
		}
	}
}

// A pass with the loop's own rights: pods are deleted at once, and are Failed before if they had not terminated.
func TestCollect(t *testing.T) {
	server := apitest.Start(t)
	api := server.Client().CoreV1()
	make := func(name, node string, finalizers ...string) {
		t.Helper()
		_, err := api.Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := api.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	make("a-lost", "nowhere") // these two are first in age and name: once they are Failed, they are the first of the finished ones to go
	make("a-lost-and-held", "nowhere", "example.com/held")
	make("stays", "here")
	make("done-1", "here")
	make("done-2", "here")
	for _, name := range []string{"done-1", "done-2"} {
		if _, err := api.Pods("default").Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	controllertest.Run(t, server, func(deps controller.Deps) controller.Loop {
		loop := New(deps)
		pods, nodes := deps.Informers.Core().V1().Pods().Lister(), deps.Informers.Core().V1().Nodes().Lister()
		quick := &collector{pods: pods, nodes: nodes, log: deps.Log, threshold: 1, every: 10 * time.Millisecond, quarantine: 50 * time.Millisecond, missingSince: map[string]time.Time{}}
		loop.Run = quick.run
		return loop
	})
	controllertest.Eventually(t, func() string {
		list, err := api.Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		left := map[string]corev1.Pod{}
		for _, pod := range list.Items {
			left[pod.Name] = pod
		}
		names := slices.Sorted(maps.Keys(left))
		if !slices.Equal(names, []string{"a-lost-and-held", "done-2", "stays"}) {
			return fmt.Sprint("the others left: there are ", names)
		}
		held := left["a-lost-and-held"]
		if held.DeletionTimestamp == nil || held.Status.Phase != corev1.PodFailed || len(held.Status.Conditions) == 0 || held.Status.Conditions[len(held.Status.Conditions)-1].Reason != "DeletionByPodGC" {
			return "a pod that is held back to be Failed and ending"
		}
		if left["stays"].DeletionTimestamp != nil {
			t.Error("a pod whose node is there is ending")
		}
		return ""
	})
}
