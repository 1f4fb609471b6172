package deployment_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/deployment"
	"skiff/internal/controller/replicaset"
)

const (
	manyDeployments = 20
	manyPods        = manyDeployments * podsEach
	podsEach        = 150
)

// BenchmarkDeploy measures the time from creating 20 Deployments of 150 pods until the 3,000 pods exist, with everything in one process and in memory.
func BenchmarkDeploy(b *testing.B) {
	benchmark(b, func(*client.Client, *corev1.Pod) {}, func(w *watcher) <-chan struct{} { return w.exist })
}

// BenchmarkRollOut measures the time until all of them are ready and the Deployments report it, with pods that become ready as soon as they exist. It
// reports how many status writes that took per pod.
func BenchmarkRollOut(b *testing.B) {
	benchmark(b, func(c *client.Client, pod *corev1.Pod) {
		pod = pod.DeepCopy()
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		if _, err := c.Kubernetes().CoreV1().Pods(pod.Namespace).UpdateStatus(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
			b.Error(err)
		}
	}, func(w *watcher) <-chan struct{} { return w.complete })
}

// benchmark creates the Deployments and waits; a few workers do something to each pod.
func benchmark(b *testing.B, do func(*client.Client, *corev1.Pod), until func(*watcher) <-chan struct{}) {
	writes := int32(0)
	for b.Loop() {
		b.StopTimer()
		server := apitest.Start(b, apitest.WithoutGuard())
		stop := controllertest.Run(b, server, deployment.New, replicaset.New, replicaset.NewReplicationController)
		w := watchAll(b, server)
		var workers sync.WaitGroup
		for range 16 {
			workers.Go(func() {
				for pod := range w.pods {
					do(w.client, pod)
				}
			})
		}
		b.StartTimer()
		for i := range manyDeployments {
			createMany(b, server, fmt.Sprint("web-", i))
		}
		select {
		case <-until(w):
		case <-time.After(2 * time.Minute):
			b.Fatal("not within two minutes")
		}
		b.StopTimer()
		writes += w.writes.Load()
		stop()
		close(w.pods)
		workers.Wait()
		b.StartTimer()
	}
	b.ReportMetric(manyPods*float64(b.N)/b.Elapsed().Seconds(), "pods/s")
	b.ReportMetric(float64(writes)/manyPods/float64(b.N), "statuswrites/pod")
}

func createMany(b *testing.B, server *apitest.Server, name string) {
	app, n := map[string]string{"app": name}, int32(podsEach)
	_, err := server.Client().AppsV1().Deployments("default").Create(b.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}}}},
		metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
}

// watcher watches the objects and counts.
type watcher struct {
	client          *client.Client
	pods            chan *corev1.Pod
	exist, complete chan struct{}
	writes          atomic.Int32 // status writes of Deployments and ReplicaSets
}

func watchAll(b *testing.B, server *apitest.Server) *watcher {
	w := &watcher{client: server.InProcess("bench", "system:bench", "system:masters"), pods: make(chan *corev1.Pod, manyPods),
		exist: make(chan struct{}), complete: make(chan struct{})}
	factory := w.client.Informers(client.InformerOptions{})
	var pods, complete atomic.Int32
	handle := func(informer cache.SharedIndexInformer, h cache.ResourceEventHandlerFuncs) {
		if _, err := informer.AddEventHandler(h); err != nil {
			b.Fatal(err)
		}
	}
	handle(factory.Core().V1().Pods().Informer(), cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		w.pods <- obj.(*corev1.Pod)
		if pods.Add(1) == manyPods {
			close(w.exist)
		}
	}})
	handle(factory.Apps().V1().ReplicaSets().Informer(), cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { w.writes.Add(1) }})
	handle(factory.Apps().V1().Deployments().Informer(), cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		w.writes.Add(1)
		if before.(*appsv1.Deployment).Status.AvailableReplicas < podsEach && after.(*appsv1.Deployment).Status.AvailableReplicas == podsEach && complete.Add(1) == manyDeployments {
			close(w.complete)
		}
	}})
	factory.Start(b.Context().Done())
	if err := factory.WaitForCacheSyncWithContext(b.Context()).AsError(); err != nil {
		b.Fatal(err)
	}
	return w
}
