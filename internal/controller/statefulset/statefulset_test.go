package statefulset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/garbagecollector"
	"skiff/internal/controller/protection"
	"skiff/internal/controller/statefulset"
	"skiff/test/seed"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSet(replicas int32, change func(*appsv1.StatefulSetSpec)) *appsv1.StatefulSet {
	labels := map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, ServiceName: "web", Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "one"}}}},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}}}}
	if change != nil {
		change(&set.Spec)
	}
	return set
}

// fakeNode stands in for the scheduler and the kubelet: it runs pods whose claims are there and removes deleted ones.
type fakeNode struct {
	mu       sync.Mutex
	problems []string
	// check returns what is wrong when a pod has been created, given the names of the pods that are ready.
	check func(created string, ready map[string]bool) string
}

func (n *fakeNode) run(t testing.TB, server *apitest.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	c := server.Client().CoreV1()
	w, err := c.Pods("default").Watch(ctx, metav1.ListOptions{})
	ok(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() {
		ready := map[string]bool{}
		for e := range w.ResultChan() {
			pod, isPod := e.Object.(*corev1.Pod)
			if !isPod {
				continue
			}
			if e.Type == watch.Added && n.check != nil {
				if problem := n.check(pod.Name, ready); problem != "" {
					n.mu.Lock()
					n.problems = append(n.problems, problem)
					n.mu.Unlock()
				}
			}
			ready[pod.Name] = e.Type != watch.Deleted && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
			if e.Type == watch.Deleted {
				continue
			}
			err := n.step(ctx, server, pod)
			if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", pod.Name, err)
			}
		}
	})
}

// step does what is next for a pod.
func (n *fakeNode) step(ctx context.Context, server *apitest.Server, pod *corev1.Pod) error {
	c := server.Client().CoreV1()
	switch {
	case pod.DeletionTimestamp != nil:
		return c.Pods("default").Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.Spec.NodeName == "":
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			if _, err := c.PersistentVolumeClaims("default").Get(ctx, v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{}); err != nil {
				return fmt.Errorf("a pod was created before its claim: %s", err)
			}
		}
		return c.Pods("default").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{})
	case pod.Status.Phase == corev1.PodPending:
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		_, err := c.Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	}
	return nil
}

// start starts a server with a node.
func start(t *testing.T, n *fakeNode) *apitest.Server {
	t.Helper()
	server := apitest.Start(t)
	_, err := server.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	ok(t, err)
	n.run(t, server)
	return server
}

// expect waits until all of the set's replicas are of its template and available.
func expect(t testing.TB, server *apitest.Server, replicas int32) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		set, err := server.Client().AppsV1().StatefulSets("default").Get(t.Context(), "web", metav1.GetOptions{})
		ok(t, err)
		if s := set.Status; s.ObservedGeneration != set.Generation || s.Replicas != replicas || s.AvailableReplicas != replicas || s.UpdatedReplicas != replicas || s.CurrentReplicas != replicas {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

func patchSet(t testing.TB, server *apitest.Server, patch string) {
	t.Helper()
	_, err := server.Client().AppsV1().StatefulSets("default").Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	ok(t, err)
}

// expectClaims waits until these claims are there, each with its controller, if it has one.
func expectClaims(t testing.TB, server *apitest.Server, want ...string) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		list, err := server.Client().CoreV1().PersistentVolumeClaims("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		ok(t, err)
		var got []string
		for _, claim := range list.Items {
			text := claim.Name
			if owner := metav1.GetControllerOf(&claim); owner != nil {
				text += " of " + owner.Kind + "/" + owner.Name
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("claims %q, want %q", got, want)
		}
		return ""
	})
}

// TestClaims follows the claims of a set: they stay when it is scaled down, and are deleted with pods and with the set where the retention policy says so.
func TestClaims(t *testing.T) {
	server := start(t, &fakeNode{})
	controllertest.Run(t, server, statefulset.New, garbagecollector.New, protection.NewClaims)
	sets := server.Client().AppsV1().StatefulSets("default")
	_, err := sets.Create(t.Context(), newSet(2, nil), metav1.CreateOptions{})
	ok(t, err)
	expect(t, server, 2)
	expectClaims(t, server, "data-web-0", "data-web-1")
	patchSet(t, server, `{"spec":{"replicas":1}}`)
	expect(t, server, 1)
	expectClaims(t, server, "data-web-0", "data-web-1")

	patchSet(t, server, `{"spec":{"replicas":3,"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Delete"}}}`)
	expect(t, server, 3)
	expectClaims(t, server, "data-web-0 of StatefulSet/web", "data-web-1 of StatefulSet/web", "data-web-2 of StatefulSet/web")
	for range 3 { // back at once: the new pod waits until the old claim is gone
		patchSet(t, server, `{"spec":{"replicas":1}}`)
		expect(t, server, 1)
		patchSet(t, server, `{"spec":{"replicas":2}}`)
		expect(t, server, 2)
		expectClaims(t, server, "data-web-0 of StatefulSet/web", "data-web-1 of StatefulSet/web")
	}
	ok(t, sets.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	expectClaims(t, server)
}

// TestFailures: what the set may not create is said by an Event, and it goes on when it may.
func TestFailures(t *testing.T) {
	server := start(t, &fakeNode{})
	controllertest.Run(t, server, statefulset.New)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("1"), "persistentvolumeclaims": resource.MustParse("5")}}}
	quota, err := server.Client().CoreV1().ResourceQuotas("default").Create(t.Context(), quota, metav1.CreateOptions{})
	ok(t, err)
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{"pods": resource.MustParse("0"), "persistentvolumeclaims": resource.MustParse("5")}
	quota, err = server.Client().CoreV1().ResourceQuotas("default").UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	ok(t, err)
	_, err = server.Client().AppsV1().StatefulSets("default").Create(t.Context(), newSet(1, nil), metav1.CreateOptions{})
	ok(t, err)
	controllertest.Eventually(t, func() string {
		events, err := server.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
		ok(t, err)
		var messages []string
		for _, e := range events.Items {
			messages = append(messages, e.Message)
		}
		for _, want := range []string{"Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: persistentvolumeclaims", "Create Pod web-0 in StatefulSet web failed error: failed to create PVC data-web-0: persistentvolumeclaims"} {
			if !slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(m, want) && strings.Contains(m, "exceeded quota") }) {
				return fmt.Sprintf("no event %q in %q", want, messages)
			}
		}
		return ""
	})
	ok(t, server.Client().CoreV1().ResourceQuotas("default").Delete(t.Context(), quota.Name, metav1.DeleteOptions{}))
	expect(t, server, 1)
}

// TestRestarts changes a set while the loop is stopped and started at random: no pod is ever created before those below it are ready.
func TestRestarts(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 1))
	n := &fakeNode{check: func(created string, ready map[string]bool) string {
		var ordinal int
		if _, err := fmt.Sscanf(created, "web-%d", &ordinal); err != nil {
			return err.Error()
		}
		for below := range ordinal {
			if !ready[fmt.Sprint("web-", below)] {
				return fmt.Sprintf("%s was created when web-%d was not ready", created, below)
			}
		}
		return ""
	}}
	server := start(t, n)
	stop := controllertest.Run(t, server, statefulset.New)
	_, err := server.Client().AppsV1().StatefulSets("default").Create(t.Context(), newSet(5, nil), metav1.CreateOptions{})
	ok(t, err)
	expect(t, server, 5)
	replicas := 5
	for round := range 12 {
		replicas = 1 + random.IntN(6)
		patchSet(t, server, fmt.Sprintf(`{"spec":{"replicas":%d,"template":{"spec":{"containers":[{"name":"c","image":"image-%d"}]}}}}`, replicas, round))
		stop()
		stop = controllertest.Run(t, server, statefulset.New)
		time.Sleep(time.Duration(20+random.IntN(100)) * time.Millisecond) // it is stopped at any point of its work
	}
	expect(t, server, int32(replicas))
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.problems) > 0 {
		t.Error(n.problems)
	}
}
