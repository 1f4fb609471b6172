package disruption

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"

	"skiff/internal/controller"
)

// newBench returns a loop and its first budget. Its caches hold a namespace of 10,000 pods in ReplicaSets of 100 pods with a budget each.
func newBench(b *testing.B) (controller.Loop, *policyv1.PodDisruptionBudget, *corev1.Pod) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	loop := New(controller.Deps{Informers: factory})
	add := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	var first *policyv1.PodDisruptionBudget
	var pod *corev1.Pod
	for i := range 100 {
		app := map[string]string{"app": fmt.Sprint("web-", i), "tier": "front"}
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i), Namespace: "default", UID: "uid"}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(100))}}
		add(factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(rs))
		owner := []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		for j := range 100 {
			pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", rs.Name, j), Namespace: "default", Labels: app, OwnerReferences: owner},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
			add(factory.Core().V1().Pods().Informer().GetIndexer().Add(pod))
		}
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: rs.Name, Namespace: "default"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, MaxUnavailable: new(intstr.FromString("10%"))},
			Status: policyv1.PodDisruptionBudgetStatus{ExpectedPods: 100, CurrentHealthy: 100, DesiredHealthy: 90, DisruptionsAllowed: 10, Conditions: []metav1.Condition{
				{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason}}}}
		add(factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer().Add(budget))
		if first == nil {
			first = budget
		}
	}
	return loop, first, pod
}

// BenchmarkReconcile measures a reconcile of a budget of 100 pods without changes, in a namespace of 10,000 pods.
func BenchmarkReconcile(b *testing.B) {
	loop, budget, _ := newBench(b)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if d := loop.Reconcile(controller.KeyOf(budget), now); len(d.Actions) != 0 || d.Err != nil {
			b.Fatal(d)
		}
	}
}

// BenchmarkPodKeys measures what a change of a pod costs that concerns one of 100 budgets, and of one that concerns none.
func BenchmarkPodKeys(b *testing.B) {
	loop, _, pod := newBench(b)
	keys := loop.Watch[1].Keys
	deleted := pod.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for name, after := range map[string]*corev1.Pod{"deleted": deleted, "unchanged": pod.DeepCopy()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n := len(keys(pod, after)); n != map[string]int{"deleted": 1, "unchanged": 0}[name] {
					b.Fatal(n)
				}
			}
		})
	}
}
