package deployment_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/deployment"
	"skiff/internal/controller/replicaset"
	"skiff/skifftest"
)

// BenchmarkDeploy is the time from creating 20 Deployments of 150 pods until the 3,000 pods exist, with everything in one process and in memory.
func BenchmarkDeploy(b *testing.B) {
	const deployments, replicas = 20, 150
	for b.Loop() {
		b.StopTimer()
		server := skifftest.Start(b, skifftest.WithoutGuard())
		stop := controllertest.Run(b, server, deployment.New, replicaset.New, replicaset.NewReplicationController)
		var pods atomic.Int32
		done := make(chan struct{})
		factory := server.InProcess("bench", "system:bench", "system:masters").Informers(client.InformerOptions{})
		_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			if pods.Add(1) == deployments*replicas {
				close(done)
			}
		}})
		if err != nil {
			b.Fatal(err)
		}
		factory.Start(b.Context().Done())
		if err := factory.WaitForCacheSyncWithContext(b.Context()).AsError(); err != nil {
			b.Fatal(err)
		}
		n := int32(replicas)
		b.StartTimer()
		for i := range deployments {
			app := map[string]string{"app": fmt.Sprint("web-", i)}
			_, err := server.Client().AppsV1().Deployments("default").Create(b.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: app["app"]},
				Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: app},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}}}},
				metav1.CreateOptions{})
			if err != nil {
				b.Fatal(err)
			}
		}
		select {
		case <-done:
		case <-time.After(time.Minute):
			b.Fatalf("only %d pods", pods.Load())
		}
		b.StopTimer()
		stop()
		b.StartTimer()
	}
	b.ReportMetric(deployments*replicas*float64(b.N)/b.Elapsed().Seconds(), "pods/s")
}
