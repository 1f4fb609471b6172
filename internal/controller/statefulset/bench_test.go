package statefulset

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
)

// BenchmarkReconcile measures a reconcile of a StatefulSet that has its 1,000 pods, each with a claim.
func BenchmarkReconcile(b *testing.B) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	loop := New(controller.Deps{Informers: factory})
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", ResourceVersion: "1"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1000), VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}}}
	prepare(set)
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, CollisionCount: new(int32), Replicas: 1000, ReadyReplicas: 1000, AvailableReplicas: 1000, CurrentReplicas: 1000, UpdatedReplicas: 1000,
		CurrentRevision: "web-a", UpdateRevision: "web-a"}
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
	owner := []metav1.OwnerReference{*metav1.NewControllerRef(set, statefulSetKind)}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-a", OwnerReferences: owner}, Revision: 1}
	prepare(revision)
	add(revision)
	for i := range 1000 {
		claim := fmt.Sprintf("data-web-%d", i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", i), UID: "p", OwnerReferences: owner, Annotations: map[string]string{"is": "ready"},
			Labels: map[string]string{appsv1.StatefulSetRevisionLabel: "web-a"}}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
		prepare(pod)
		add(pod)
		add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim}})
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
