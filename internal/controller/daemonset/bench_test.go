package daemonset

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"skiff/internal/controller"
)

// BenchmarkReconcile measures a reconcile of a DaemonSet that has its pods on 1,000 nodes.
func BenchmarkReconcile(b *testing.B) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	loop := New(controller.Deps{Informers: factory})
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d", UID: "u", ResourceVersion: "1"}}
	prepare(set)
	set.Status = appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 1000, CurrentNumberScheduled: 1000, NumberReady: 1000, NumberAvailable: 1000, UpdatedNumberScheduled: 1000}
	add := func(obj controller.Object) {
		informer, err := factory.ForResource(controller.ResourceOf(obj))
		if err != nil {
			b.Fatal(err)
		}
		if err := informer.Informer().GetIndexer().Add(obj); err != nil {
			b.Fatal(err)
		}
	}
	add(set)
	owner := []metav1.OwnerReference{*metav1.NewControllerRef(set, daemonSetKind)}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d-a", OwnerReferences: owner, Annotations: map[string]string{"image": "i"}}, Revision: 1}
	prepare(revision)
	add(revision)
	for i := range 1000 {
		node := fmt.Sprintf("node-%d", i)
		add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + node, OwnerReferences: owner, Labels: map[string]string{"app": "d", hashLabel: "a"}},
			Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}})
	}
	key, now := controller.KeyOf(set), time.Now()
	if d := loop.Reconcile(key, now); len(d.Actions) > 0 || d.Err != nil || d.Then != nil {
		b.Fatalf("there is something to do: %v, %v", d.Actions, d.Err)
	}
	b.ReportAllocs()
	for b.Loop() {
		loop.Reconcile(key, now)
	}
}
