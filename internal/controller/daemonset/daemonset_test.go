package daemonset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/daemonset"
	"skiff/test/seed"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addNodes(t testing.TB, server *apitest.Server, n int) {
	t.Helper()
	for i := range n {
		addNode(t, server, fmt.Sprintf("n%d", i))
	}
}

// addNode adds a ready node, without the taint that nodes are created with.
func addNode(t testing.TB, server *apitest.Server, name string) {
	t.Helper()
	_, err := server.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	ok(t, err)
	_, err = server.Client().CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	ok(t, err)
}

func newSet(name, image string, change func(*appsv1.DaemonSetSpec)) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}}}
	if change != nil {
		change(&d.Spec)
	}
	return d
}

// fakeNodes stands in for the scheduler and the kubelets: it binds pods to the nodes that they are created for, runs them, and removes deleted ones. It counts.
type fakeNodes struct {
	mu sync.Mutex
	// least is the smallest number of nodes with a ready pod since reset, most the largest number of pods on one node, extra the largest number of nodes
	// with two.
	ready, pods        map[string]int
	least, most, extra int
}

func (n *fakeNodes) run(t testing.TB, server *apitest.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	c := server.Client().CoreV1().Pods("default")
	w, err := c.Watch(ctx, metav1.ListOptions{})
	ok(t, err)
	n.ready, n.pods = map[string]int{}, map[string]int{}
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	type where struct {
		node  string
		ready bool
	}
	running.Go(func() {
		known := map[types.UID]where{}
		for e := range w.ResultChan() {
			pod, isPod := e.Object.(*corev1.Pod)
			if !isPod {
				continue
			}
			is := where{pod.Spec.NodeName, len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == corev1.ConditionTrue}
			if e.Type == watch.Deleted || pod.DeletionTimestamp != nil {
				is = where{}
			}
			n.note(func() {
				was := known[pod.UID]
				if was.node != "" {
					n.pods[was.node]--
				}
				if was.ready {
					n.ready[was.node]--
				}
				if is.node != "" {
					n.pods[is.node]++
				}
				if is.ready {
					n.ready[is.node]++
				}
				known[pod.UID] = is
			})
			if e.Type != watch.Deleted {
				if err := n.step(ctx, server, pod); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					t.Errorf("%s: %v", pod.Name, err)
				}
			}
		}
	})
}

// step does what is next for a pod.
func (n *fakeNodes) step(ctx context.Context, server *apitest.Server, pod *corev1.Pod) error {
	c := server.Client().CoreV1().Pods("default")
	switch {
	case pod.DeletionTimestamp != nil:
		return c.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.Spec.NodeName == "":
		node := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
		return c.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	case pod.Status.Phase == corev1.PodPending:
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		_, err := c.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	}
	return nil
}

// note updates the counts and their extremes.
func (n *fakeNodes) note(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	ready, extra := 0, 0
	for _, count := range n.ready {
		if count > 0 {
			ready++
		}
	}
	for _, count := range n.pods {
		n.most = max(n.most, count)
		if count > 1 {
			extra++
		}
	}
	n.least, n.extra = min(n.least, ready), max(n.extra, extra)
}

// reset resets the extremes.
func (n *fakeNodes) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.least, n.most, n.extra = 1<<30, 0, 0
}

// expect waits until all of a DaemonSet's pods are of its template and available.
func expect(t testing.TB, server *apitest.Server, name string, pods int) *appsv1.DaemonSet {
	t.Helper()
	var d *appsv1.DaemonSet
	controllertest.Eventually(t, func() string {
		var err error
		d, err = server.Client().AppsV1().DaemonSets("default").Get(t.Context(), name, metav1.GetOptions{})
		ok(t, err)
		if s := d.Status; s.ObservedGeneration != d.Generation || int(s.DesiredNumberScheduled) != pods || int(s.UpdatedNumberScheduled) != pods || int(s.NumberAvailable) != pods ||
			s.NumberUnavailable != 0 || s.NumberMisscheduled != 0 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	return d
}

func setImage(t testing.TB, server *apitest.Server, name, image string) {
	t.Helper()
	_, err := server.Client().AppsV1().DaemonSets("default").Patch(t.Context(), name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image), metav1.PatchOptions{})
	ok(t, err)
}

func revisions(t testing.TB, server *apitest.Server) map[int64]string {
	t.Helper()
	list, err := server.Client().AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
	ok(t, err)
	out := map[int64]string{}
	for _, r := range list.Items {
		_, rest, _ := strings.Cut(string(r.Data.Raw), `"image":"`)
		out[r.Revision], _, _ = strings.Cut(rest, `"`)
	}
	return out
}

// TestDaemonSet follows a DaemonSet: nodes are added, tainted and deleted, the template changes and is rolled back.
func TestDaemonSet(t *testing.T) {
	server := apitest.Start(t)
	addNodes(t, server, 4)
	n := &fakeNodes{}
	n.run(t, server)
	stop := controllertest.Run(t, server, daemonset.New)
	ctx, sets := t.Context(), server.Client().AppsV1().DaemonSets("default")
	_, err := sets.Create(ctx, newSet("d", "one", nil), metav1.CreateOptions{})
	ok(t, err)
	expect(t, server, "d", 4)
	addNode(t, server, "late")
	expect(t, server, "d", 5)

	n.reset()
	setImage(t, server, "d", "two")
	expect(t, server, "d", 5)
	n.mu.Lock()
	if n.least < 4 || n.most > 1 {
		t.Errorf("while updating, %d of 5 were ready, and up to %d on a node", n.least, n.most)
	}
	n.mu.Unlock()
	setImage(t, server, "d", "one")
	expect(t, server, "d", 5)
	if got := revisions(t, server); len(got) != 2 || got[3] != "one" || got[2] != "two" {
		t.Errorf("revisions %v", got)
	}

	taint := func(taints string) {
		t.Helper()
		_, err := server.Client().CoreV1().Nodes().Patch(ctx, "late", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"taints":%s}}`, taints), metav1.PatchOptions{})
		ok(t, err)
	}
	taint(`[{"key":"mine","effect":"NoExecute"}]`)
	expect(t, server, "d", 4)
	stop() // changes while the loop does not run
	taint(`null`)
	controllertest.Run(t, server, daemonset.New)
	expect(t, server, "d", 5)

	pods, err := server.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	ok(t, err)
	failed := pods.Items[0]
	failed.Status.Phase = corev1.PodFailed
	_, err = server.Client().CoreV1().Pods("default").UpdateStatus(ctx, &failed, metav1.UpdateOptions{})
	ok(t, err)
	controllertest.Eventually(t, func() string {
		if _, err := server.Client().CoreV1().Pods("default").Get(ctx, failed.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the failed pod is still there: %v", err)
		}
		return ""
	})
	expect(t, server, "d", 5)
	controllertest.Eventually(t, func() string {
		events, err := server.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedDaemonPod"})
		ok(t, err)
		if len(events.Items) == 0 {
			return "nobody was told of the failed pod"
		}
		return ""
	})
}

// TestFaults updates DaemonSets while the loop is stopped and started at random: maxUnavailable and maxSurge are never exceeded.
func TestFaults(t *testing.T) {
	seed := seed.New(t)
	const count = 12
	for _, c := range []struct {
		name                string
		unavailable, surge  int32
		least, most, extras int
	}{
		{"unavailable", 2, 0, count - 2, 1, 0},
		{"surge", 0, 3, count, 2, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := apitest.Start(t)
			addNodes(t, server, count)
			n := &fakeNodes{}
			n.run(t, server)
			stop := controllertest.Run(t, server, daemonset.New)
			_, err := server.Client().AppsV1().DaemonSets("default").Create(t.Context(), newSet("d", "one", func(s *appsv1.DaemonSetSpec) {
				unavailable, surge := intstr.FromInt32(c.unavailable), intstr.FromInt32(c.surge)
				s.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
					RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable, MaxSurge: &surge}}
			}), metav1.CreateOptions{})
			ok(t, err)
			expect(t, server, "d", count)
			random := rand.New(rand.NewPCG(seed, 1))
			n.reset()
			for round := range 8 {
				setImage(t, server, "d", fmt.Sprintf("image-%d", round))
				stop()
				stop = controllertest.Run(t, server, daemonset.New)
				time.Sleep(100*time.Millisecond + time.Duration(random.IntN(60))*time.Millisecond) // it takes that long to begin
			}
			expect(t, server, "d", count)
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.least < c.least || n.most > c.most || n.extra > c.extras {
				t.Errorf("at the worst moment %d of %d were ready, %d pods were on a node, %d nodes had two", n.least, count, n.most, n.extra)
			}
		})
	}
}
