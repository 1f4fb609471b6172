package replicaset

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"skiff/internal/controller"
)

// BenchmarkReconcile measures a reconcile of a ReplicaSet of 150 pods without changes, beside 10,000 orphan pods.
func BenchmarkReconcile(b *testing.B) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	loop := New(controller.Deps{Informers: factory})
	rs := replicaSet(150)
	add := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	pods := factory.Core().V1().Pods().Informer().GetIndexer()
	for i := range 150 {
		pod := newPod(func() set { s, _ := fromReplicaSet(rs); return s }(), fmt.Sprint("web-", i))
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		add(pods.Add(pod))
	}
	for i := range 10_000 {
		add(pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("alone-", i), Namespace: "default", Labels: map[string]string{"app": "alone"}}}))
	}
	rs.Status.Replicas, rs.Status.FullyLabeledReplicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = 150, 150, 150, 150
	add(factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(rs))
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if d := loop.Reconcile(controller.KeyOf(rs), now); len(d.Actions) != 0 {
			b.Fatal(d.Actions)
		}
	}
}
