package disruption_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/deployment"
	"skiff/internal/controller/disruption"
	"skiff/internal/controller/replicaset"
	"skiff/test/seed"
)

var app = map[string]string{"app": "web"}

// cluster is a server with the loop.
type cluster struct {
	testing.TB
	*apitest.Server
}

func (c cluster) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// budget creates a budget for the pods of app.
func (c cluster) budget(name string, spec policyv1.PodDisruptionBudgetSpec) {
	c.Helper()
	spec.Selector = &metav1.LabelSelector{MatchLabels: app}
	_, err := c.Client().PolicyV1().PodDisruptionBudgets("default").Create(c.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	c.ok(err)
}

// pod creates a pod of app that is ready.
func (c cluster) pod(name string, owners ...metav1.OwnerReference) *corev1.Pod {
	c.Helper()
	pod, err := c.Client().CoreV1().Pods("default").Create(c.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: app, OwnerReferences: owners}, Spec: template().Spec}, metav1.CreateOptions{})
	c.ok(err)
	controllertest.ReportPhase(c, c.Server, pod, corev1.PodRunning, "")
	return pod
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}}
}

// status waits until a budget's status is as wanted: expected, current, desired and allowed.
func (c cluster) status(name, want string) policyv1.PodDisruptionBudgetStatus {
	c.Helper()
	var status policyv1.PodDisruptionBudgetStatus
	controllertest.Eventually(c, func() string {
		b, err := c.Client().PolicyV1().PodDisruptionBudgets("default").Get(c.Context(), name, metav1.GetOptions{})
		c.ok(err)
		status = b.Status
		got := fmt.Sprintf("expected %d, current %d, desired %d, allowed %d", status.ExpectedPods, status.CurrentHealthy, status.DesiredHealthy, status.DisruptionsAllowed)
		if len(status.Conditions) == 1 {
			got += ", " + status.Conditions[0].Reason
		}
		if got != want || status.ObservedGeneration != b.Generation {
			return fmt.Sprintf("status %s, not %s of generation %d", want, got, status.ObservedGeneration)
		}
		return ""
	})
	return status
}

func (c cluster) evict(ctx context.Context, pod string) error {
	return c.Client().CoreV1().Pods("default").EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod}})
}

// event waits for an Event.
func (c cluster) event(kind, name, want string) {
	c.Helper()
	controllertest.Eventually(c, func() string {
		list, err := c.Client().CoreV1().Events("default").List(c.Context(), metav1.ListOptions{})
		c.ok(err)
		var all []string
		for _, e := range list.Items {
			all = append(all, fmt.Sprintf("%s %s %s %s %s: %s", e.Source.Component, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Type, e.Reason, e.Message))
			if all[len(all)-1] == fmt.Sprintf("controllermanager %s %s %s", kind, name, want) {
				return ""
			}
		}
		return fmt.Sprintf("the event %s in\n%s", want, strings.Join(all, "\n"))
	})
}

// A budget of a Deployment from its creation to its last eviction, as a client sees it.
func TestDeployment(t *testing.T) {
	c := cluster{t, apitest.Start(t)}
	controllertest.Run(t, c.Server, disruption.New, deployment.New, replicaset.New)
	c.budget("b", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1))})
	c.status("b", "expected 0, current 0, desired 0, allowed 0, InsufficientPods")
	c.event("PodDisruptionBudget", "b", "Normal NoPods: No matching pods found")
	deployments := c.Client().AppsV1().Deployments("default")
	_, err := deployments.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: app}, Template: template()}}, metav1.CreateOptions{})
	c.ok(err)
	c.status("b", "expected 3, current 0, desired 2, allowed 0, InsufficientPods")
	var ready []string
	makeReady := func(want int) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			list, err := c.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			c.ok(err)
			ready = ready[:0]
			for _, pod := range list.Items {
				if pod.Status.Phase == corev1.PodPending {
					controllertest.ReportPhase(t, c.Server, &pod, corev1.PodRunning, "")
				}
				ready = append(ready, pod.Name)
			}
			if len(ready) != want {
				return fmt.Sprintf("%d pods, not %d", want, len(ready))
			}
			return ""
		})
	}
	makeReady(3)
	c.status("b", "expected 3, current 3, desired 2, allowed 1, SufficientPods")

	c.ok(c.evict(t.Context(), ready[0]))
	if err := c.evict(t.Context(), ready[1]); !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second eviction: %v", err)
	}
	c.status("b", "expected 3, current 2, desired 2, allowed 0, InsufficientPods")
	makeReady(3)
	if s := c.status("b", "expected 3, current 3, desired 2, allowed 1, SufficientPods"); len(s.DisruptedPods) != 0 {
		t.Errorf("pods that have gone are listed: %v", s.DisruptedPods)
	}

	// The number that is wanted counts as soon as it changes.
	_, err = deployments.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{})
	c.ok(err)
	c.status("b", "expected 5, current 3, desired 4, allowed 0, InsufficientPods")
}

// A pod is listed as disrupted for two minutes, if it is not deleted.
func TestDisruptedPodStays(t *testing.T) {
	c := cluster{t, apitest.Start(t)}
	c.budget("b", policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1))})
	c.pod("a")
	c.pod("b")
	soon := metav1.NewTime(time.Now().Add(-118 * time.Second))
	budgets := c.Client().PolicyV1().PodDisruptionBudgets("default")
	b, err := budgets.Get(t.Context(), "b", metav1.GetOptions{})
	c.ok(err)
	b.Status.DisruptedPods = map[string]metav1.Time{"a": soon, "none": soon}
	_, err = budgets.UpdateStatus(t.Context(), b, metav1.UpdateOptions{})
	c.ok(err)
	controllertest.Run(t, c.Server, disruption.New)
	if s := c.status("b", "expected 2, current 1, desired 1, allowed 0, InsufficientPods"); len(s.DisruptedPods) != 1 {
		t.Errorf("disrupted pods: %v", s.DisruptedPods)
	}
	c.status("b", "expected 2, current 2, desired 1, allowed 1, SufficientPods")
	c.event("Pod", "a", "Warning NotDeleted: Pod was expected by PDB default/b to be deleted but it wasn't")
}

// All budgets of a pod are told of it, and the pod is told that it has several.
func TestSeveralBudgets(t *testing.T) {
	c := cluster{t, apitest.Start(t)}
	controllertest.Run(t, c.Server, disruption.New)
	c.budget("one", policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(0))})
	c.budget("two", policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1))})
	c.status("one", "expected 0, current 0, desired 0, allowed 0, InsufficientPods")
	c.status("two", "expected 0, current 0, desired 1, allowed 0, InsufficientPods")
	c.pod("a")
	c.status("one", "expected 1, current 1, desired 0, allowed 1, SufficientPods")
	c.status("two", "expected 1, current 1, desired 1, allowed 0, InsufficientPods")
	c.event("Pod", "a", `Warning MultiplePodDisruptionBudgets: Pod "default"/"a" matches multiple PodDisruptionBudgets.  Chose "one" arbitrarily.`)
	if err := c.evict(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "This pod has more than one PodDisruptionBudget") {
		t.Errorf("the eviction of a pod with two budgets: %v", err)
	}
	_, err := c.Client().CoreV1().Pods("default").Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{})
	c.ok(err)
	c.status("one", "expected 0, current 0, desired 0, allowed 0, InsufficientPods")
	c.status("two", "expected 0, current 0, desired 1, allowed 0, InsufficientPods")
}

// A pod that should have been deleted two minutes ago may stay.
func TestStaleCondition(t *testing.T) {
	c := cluster{t, apitest.Start(t)}
	pod := c.pod("a")
	pods := c.Client().CoreV1().Pods("default")
	set := func(age time.Duration) {
		pod, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
		c.ok(err)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			LastTransitionTime: metav1.NewTime(time.Now().Add(-age))}}
		_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		c.ok(err)
	}
	cleared := func() {
		t.Helper()
		controllertest.Eventually(t, func() string {
			pod, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
			c.ok(err)
			if got := pod.Status.Conditions[0]; got.Status != corev1.ConditionFalse || got.Reason != "" || got.Message != "" || got.ObservedGeneration != pod.Generation {
				return fmt.Sprintf("the condition is %v", got)
			}
			return ""
		})
	}
	set(time.Hour)
	controllertest.Run(t, c.Server, disruption.New)
	cleared()
	set(119 * time.Second)
	cleared()
}

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	sets        = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sets"}
)

// define creates or replaces the definition of Sets, whose scale is spec.replicas if it has one.
func (c cluster) define(d dynamic.Interface, subresources map[string]any) {
	c.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "sets.example.com"},
		"spec": map[string]any{"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "sets", "singular": "set", "kind": "Set"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "subresources": subresources,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}}
	_, err := d.Resource(definitions).Apply(c.Context(), "sets.example.com", definition, metav1.ApplyOptions{FieldManager: "test", Force: true})
	c.ok(err)
	controllertest.Eventually(c, func() string {
		list, err := c.Client().Discovery().ServerResourcesForGroupVersion("example.com/v1")
		if err != nil {
			return err.Error()
		}
		for _, r := range list.APIResources {
			if r.Name == "sets" && len(subresources) == 0 || r.Name == "sets/scale" {
				return ""
			}
		}
		return fmt.Sprintf("Sets in %v", list.APIResources)
	})
}

// failed waits until a budget has failed with a message.
func (c cluster) failed(name, want string) {
	c.Helper()
	controllertest.Eventually(c, func() string {
		b, err := c.Client().PolicyV1().PodDisruptionBudgets("default").Get(c.Context(), name, metav1.GetOptions{})
		c.ok(err)
		if len(b.Status.Conditions) != 1 || b.Status.Conditions[0].Reason != policyv1.SyncFailedReason || b.Status.Conditions[0].Message != want {
			return fmt.Sprintf("the failure %s: the status is %+v", want, b.Status)
		}
		if b.Status.DisruptionsAllowed != 0 {
			c.Errorf("it failed and allows %d disruptions", b.Status.DisruptionsAllowed)
		}
		return ""
	})
}

// Pods of a custom resource: its scale counts, and as long as that cannot be read the budget allows nothing.
func TestCustomScale(t *testing.T) {
	c := cluster{t, apitest.Start(t)}
	controllertest.Run(t, c.Server, disruption.New)
	d, err := dynamic.NewForConfig(c.Config())
	c.ok(err)
	c.budget("b", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromString("50%"))})
	owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Set", Name: "big", UID: "not-yet", Controller: new(true)}
	c.pod("early", owner)
	c.failed("b", `no matches for kind "Set" in version "example.com/v1"`)
	c.event("PodDisruptionBudget", "b", `Warning CalculateExpectedPodCountFailed: Failed to calculate the number of expected pods: no matches for kind "Set" in version "example.com/v1"`)
	c.ok(c.Client().CoreV1().Pods("default").Delete(t.Context(), "early", metav1.DeleteOptions{}))

	c.define(d, map[string]any{})
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Set", "metadata": map[string]any{"name": "big"}, "spec": map[string]any{"replicas": int64(4)}}}
	set, err = d.Resource(sets).Namespace("default").Create(t.Context(), set, metav1.CreateOptions{})
	c.ok(err)
	owner.UID = set.GetUID()
	for _, name := range []string{"x", "y", "z"} {
		c.pod(name, owner)
	}
	c.failed("b", "sets.example.com does not implement the scale subresource")

	// Nothing else changes: the budget is tried again.
	c.define(d, map[string]any{"scale": map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}})
	c.status("b", "expected 4, current 3, desired 2, allowed 1, SufficientPods")
	_, err = d.Resource(sets).Namespace("default").Patch(t.Context(), "big", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
	c.ok(err)
	c.pod("w", owner)
	c.status("b", "expected 2, current 4, desired 1, allowed 3, SufficientPods")

	owner.UID = "another"
	c.pod("v", owner)
	c.failed("b", `found no controllers for pod "v"`)
	c.ok(d.Resource(definitions).Delete(t.Context(), "sets.example.com", metav1.DeleteOptions{}))
	c.failed("b", `no matches for kind "Set" in version "example.com/v1"`)
}

// Many clients evict pods at a time, pods are replaced, and the loop is restarted: there are never fewer healthy pods than the budget asks for.
func TestNeverFewerThanTheBudget(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	const replicas, most, evictions = 40, 4, 150
	c := cluster{t, apitest.Start(t)}
	controllertest.Run(t, c.Server, replicaset.New)
	_, err := c.Client().AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: app}, Template: template()}}, metav1.CreateOptions{})
	c.ok(err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	healthy := c.tend(ctx, &running, replicas-most)
	c.budget("b", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(most))})
	stop := controllertest.Run(t, c.Server, disruption.New)
	c.status("b", fmt.Sprintf("expected %d, current %d, desired %d, allowed %d, SufficientPods", replicas, replicas, replicas-most, most))
	var evicted atomic.Int32
	for range 8 {
		pick := rand.New(rand.NewPCG(random.Uint64(), 0))
		running.Go(func() {
			for ctx.Err() == nil {
				pods := healthy()
				switch err := c.evict(ctx, pods[pick.IntN(len(pods))]); {
				case err == nil:
					evicted.Add(1)
				case apierrors.IsTooManyRequests(err), apierrors.IsNotFound(err), ctx.Err() != nil:
				default:
					t.Error(err)
				}
			}
		})
	}
	for done := int32(0); done < evictions; done = evicted.Load() {
		controllertest.Eventually(t, func() string {
			if evicted.Load() < done+evictions/5 {
				return fmt.Sprintf("%d evictions", done+evictions/5)
			}
			return ""
		})
		stop()
		stop = controllertest.Run(t, c.Server, disruption.New)
	}
	t.Logf("%d pods were evicted", evicted.Load())
}

// tend makes new pods ready, and fails the test if fewer than least of them are healthy once there were more. It returns a function that returns the
// names of the healthy ones.
func (c cluster) tend(ctx context.Context, running *sync.WaitGroup, least int) func() []string {
	var mu sync.Mutex
	ready, enough := map[string]bool{}, false
	watching, err := c.Client().CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	c.ok(err)
	running.Go(func() {
		defer watching.Stop()
		for e := range watching.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				return // the test is over
			}
			mu.Lock()
			if e.Type == watch.Deleted || pod.DeletionTimestamp != nil {
				delete(ready, pod.Name)
			} else if pod.Status.Phase == corev1.PodRunning {
				ready[pod.Name] = true
			}
			if enough = enough || len(ready) > least; enough && len(ready) < least {
				c.Errorf("there are %d healthy pods, and %d ought to be", len(ready), least)
			}
			mu.Unlock()
			if e.Type == watch.Added && pod.Status.Phase == corev1.PodPending {
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
				if _, err := c.Client().CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
					c.Error(err)
				}
			}
		}
	})
	return func() (names []string) {
		mu.Lock()
		defer mu.Unlock()
		for name := range ready {
			names = append(names, name)
		}
		return names
	}
}
