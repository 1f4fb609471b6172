package replicaset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/replicaset"
	"skiff/internal/store"
	"skiff/internal/store/memory"
	"skiff/test/seed"
)

var app = map[string]string{"app": "web"}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}}
}

func create(t *testing.T, server *apitest.Server, namespace string, replicas int32) *appsv1.ReplicaSet {
	t.Helper()
	rs, err := server.Client().AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app}, Template: template()}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func pods(t *testing.T, server *apitest.Server, namespace string) []corev1.Pod {
	t.Helper()
	list, err := server.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.FormatLabels(app)})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// status waits until a ReplicaSet has a status.
func status(t *testing.T, server *apitest.Server, namespace string, want func(appsv1.ReplicaSetStatus) bool) appsv1.ReplicaSetStatus {
	t.Helper()
	var last appsv1.ReplicaSetStatus
	controllertest.Eventually(t, func() string {
		rs, err := server.Client().AppsV1().ReplicaSets(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last = rs.Status
		if want(rs.Status) {
			return ""
		}
		return fmt.Sprintf("the status is %+v", rs.Status)
	})
	return last
}

// events returns the Events about web, sorted.
func events(t *testing.T, server *apitest.Server, namespace string) []string {
	t.Helper()
	list, err := server.Client().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list.Items {
		if e.InvolvedObject.Name == "web" {
			all = append(all, fmt.Sprintf("%s %s %s %s", e.Source.Component, e.InvolvedObject.Kind, e.Reason, e.Message))
		}
	}
	slices.Sort(all)
	return all
}

// A ReplicaSet from creation to deletion, as a client sees it.
func TestReplicaSet(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, replicaset.New)
	ctx, sets, podClient := t.Context(), server.Client().AppsV1().ReplicaSets("default"), server.Client().CoreV1().Pods("default")
	rs := create(t, server, "default", 3)
	status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 3 && s.ObservedGeneration == 1 })

	made := pods(t, server, "default")
	for _, p := range made {
		if !metav1.IsControlledBy(&p, rs) || p.GenerateName != "web-" || !strings.HasPrefix(p.Name, "web-") || len(p.Name) != len("web-")+5 {
			t.Errorf("%+v", p.ObjectMeta)
		}
		controllertest.ReportPhase(t, server, &p, corev1.PodRunning, "10.0.0.1")
	}
	s := status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.AvailableReplicas == 3 })
	if s.FullyLabeledReplicas != 3 || s.ReadyReplicas != 3 || ptr.Deref(s.TerminatingReplicas, -1) != 0 || len(s.Conditions) != 0 {
		t.Errorf("%+v", s)
	}

	// A deleted pod is replaced.
	if err := podClient.Delete(ctx, made[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		if now := pods(t, server, "default"); len(now) != 3 || slices.ContainsFunc(now, func(p corev1.Pod) bool { return p.Name == made[0].Name }) {
			return fmt.Sprintf("there are %d pods", len(now))
		}
		return ""
	})

	// A pod whose labels no longer match is released and replaced, and adopted again when they match again: then there is one too many.
	relabel := func(value string) {
		if _, err := podClient.Patch(ctx, made[1].Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"`+value+`"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	relabel("debug")
	controllertest.Eventually(t, func() string {
		p, err := podClient.Get(ctx, made[1].Name, metav1.GetOptions{})
		if err != nil || metav1.GetControllerOf(p) != nil || len(pods(t, server, "default")) != 3 {
			return fmt.Sprintf("%v, %v of %d", err, p.OwnerReferences, len(pods(t, server, "default")))
		}
		return ""
	})
	relabel("web")
	controllertest.Eventually(t, func() string {
		now := pods(t, server, "default")
		if len(now) != 3 || slices.ContainsFunc(now, func(p corev1.Pod) bool { return !metav1.IsControlledBy(&p, rs) }) {
			return fmt.Sprintf("there are %d pods", len(now))
		}
		return ""
	})

	if _, err := sets.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 0 && s.ObservedGeneration == 2 })
	controllertest.Eventually(t, func() string {
		all := events(t, server, "default")
		want := "replicaset-controller ReplicaSet SuccessfulCreate Created pod: " + made[0].Name
		gone := slices.ContainsFunc(all, func(e string) bool {
			return strings.HasPrefix(e, "replicaset-controller ReplicaSet SuccessfulDelete Deleted pod: web-")
		})
		if !slices.Contains(all, want) || !gone {
			return fmt.Sprintf("%q in %q", want, all)
		}
		return ""
	})
}

// Pods that are deleted gracefully are replaced at once, and counted as terminating until they are gone.
func TestTerminating(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, replicaset.New)
	create(t, server, "default", 1)
	status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 1 })
	pod := pods(t, server, "default")[0]
	controllertest.Bind(t, server, &pod, "n1")
	if err := server.Client().CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 1 && *s.TerminatingReplicas == 1 })
	if n := len(pods(t, server, "default")); n != 2 {
		t.Errorf("%d pods", n)
	}
	if err := server.Client().CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
		t.Fatal(err)
	}
	status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 1 && *s.TerminatingReplicas == 0 })
}

// With a quota of two pods, the failure to create the other three is reported, and they are created when there is room.
func TestQuota(t *testing.T) {
	server := apitest.Start(t)
	quotas := server.Client().CoreV1().ResourceQuotas("default")
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}
	if _, err := quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string { // admission goes by the server's cache, which may learn of it a moment later
		known, err := quotas.Get(t.Context(), "q", metav1.GetOptions{ResourceVersion: "0"})
		if err != nil || len(known.Status.Hard) == 0 {
			return fmt.Sprintf("the quota is %v, %v", known, err)
		}
		return ""
	})
	controllertest.Run(t, server, replicaset.New)
	create(t, server, "default", 5)
	s := status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 2 && len(s.Conditions) == 1 })
	c := s.Conditions[0]
	if c.Type != appsv1.ReplicaSetReplicaFailure || c.Status != corev1.ConditionTrue || c.Reason != "FailedCreate" || !strings.Contains(c.Message, "exceeded quota: q") {
		t.Errorf("%+v", c)
	}
	controllertest.Eventually(t, func() string {
		all := events(t, server, "default")
		if !slices.ContainsFunc(all, func(e string) bool {
			return strings.Contains(e, `FailedCreate Error creating: pods "web-`) && strings.Contains(e, "exceeded quota: q")
		}) {
			return fmt.Sprintf("%q", all)
		}
		return ""
	})
	if err := quotas.Delete(t.Context(), "q", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 5 && len(s.Conditions) == 0 })
}

// In a terminating namespace nothing is created, and no Event is recorded.
func TestTerminatingNamespace(t *testing.T) {
	server := apitest.Start(t)
	ctx, core := t.Context(), server.Client().CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Run(t, server, replicaset.New)
	create(t, server, "doomed", 2)
	status(t, server, "doomed", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 2 })
	if err := core.Namespaces().Delete(ctx, "doomed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := core.Pods("doomed").Delete(ctx, pods(t, server, "doomed")[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s := status(t, server, "doomed", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 1 })
	if len(s.Conditions) != 0 {
		t.Errorf("%+v", s.Conditions)
	}
	for _, e := range events(t, server, "doomed") {
		if strings.Contains(e, "Failed") {
			t.Error(e)
		}
	}
}

func TestReplicationController(t *testing.T) {
	server := apitest.Start(t)
	ctx, controllers := t.Context(), server.Client().CoreV1().ReplicationControllers("default")
	stray, err := server.Client().CoreV1().Pods("default").Create(ctx,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stray", Labels: app}, Spec: template().Spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controllertest.Run(t, server, replicaset.New, replicaset.NewReplicationController) // now, for pods and controllers are heard of in any order
	rc, err := controllers.Create(ctx, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ReplicationControllerSpec{Replicas: ptr.To(int32(3)), Selector: app, Template: ptr.To(template())}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		now, err := controllers.Get(ctx, "web", metav1.GetOptions{})
		if err != nil || now.Status.Replicas != 3 || now.Status.ObservedGeneration != 1 {
			return fmt.Sprintf("%v, %+v", err, now.Status)
		}
		return ""
	})
	all := pods(t, server, "default")
	if len(all) != 3 || !slices.ContainsFunc(all, func(p corev1.Pod) bool { return p.UID == stray.UID && metav1.IsControlledBy(&p, rc) }) {
		t.Errorf("%d pods", len(all))
	}
	controllertest.Eventually(t, func() string {
		all := events(t, server, "default")
		if len(all) != 2 || !strings.HasPrefix(all[0], "replication-controller ReplicationController SuccessfulCreate Created pod: web-") {
			return fmt.Sprintf("%q", all)
		}
		return ""
	})
}

// Pods that have been ready for minReadySeconds are available, without another event.
func TestMinReadySeconds(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, replicaset.New)
	create(t, server, "default", 1)
	_, err := server.Client().AppsV1().ReplicaSets("default").Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"minReadySeconds":1}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 1 && s.ObservedGeneration == 2 })
	controllertest.ReportPhase(t, server, &pods(t, server, "default")[0], corev1.PodRunning, "10.0.0.1")
	status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.ReadyReplicas == 1 })
	status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.AvailableReplicas == 1 })
}

// However often the loop is restarted, there are never more pods than replicas, and in the end as many.
func TestRestarts(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	kept := memory.New(memory.Options{})
	defer kept.Close()
	server := apitest.Start(t, apitest.WithStore(slowStore{kept}))
	const most = 60
	create(t, server, "default", 0)
	counted := countPods(t, server)
	scale := func(replicas int) {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		if _, err := server.Client().AppsV1().ReplicaSets("default").Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		stop := controllertest.Run(t, server, replicaset.New)
		scale(0)
		status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 0 })
		scale(most)
		for range 3 {
			time.Sleep(time.Duration(random.IntN(150_000)) * time.Microsecond) // a moment to be ended at
			stop()
			stop = controllertest.Run(t, server, replicaset.New)
		}
		status(t, server, "default", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == most })
		stop()
	}
	created, highest := counted()
	if highest > most {
		t.Errorf("there were %d pods", highest)
	}
	t.Logf("%d pods were created, at most %d there at a time", created, highest)
}

// slowStore is a store that takes long to write some pods, and carries out writes whose client has given up, as etcd may.
type slowStore struct{ store.Store }

func (s slowStore) Put(ctx context.Context, key string, value []byte, o store.PutOptions) (int64, error) {
	if strings.HasPrefix(key, "/registry/pods/") {
		if rand.IntN(10) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		ctx = context.WithoutCancel(ctx)
	}
	return s.Store.Put(ctx, key, value, o)
}

// countPods counts all pods; the function it returns reports how many were created and how many there were at most.
func countPods(t *testing.T, server *apitest.Server) func() (created, highest int) {
	t.Helper()
	client := server.Client().CoreV1().Pods("default")
	watching, err := client.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const last = "last" // the pod after which nothing is counted
	done := make(chan [2]int, 1)
	go func() {
		there, created, highest := map[types.UID]bool{}, 0, 0
		for e := range watching.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			switch {
			case !ok || pod.Name == last:
				watching.Stop()
			case e.Type == watch.Deleted:
				delete(there, pod.UID)
			default:
				if !there[pod.UID] {
					created++
				}
				there[pod.UID] = true
				highest = max(highest, len(there))
			}
		}
		done <- [2]int{created, highest}
	}()
	return func() (int, int) {
		if _, err := client.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: last}, Spec: template().Spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		n := <-done
		return n[0], n[1]
	}
}
