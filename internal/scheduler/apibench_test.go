package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/scheduler"
)

// BenchmarkSchedule schedules 3,000 pods on 1,000 nodes, with the API server, on a store in memory, in the same process. "waiting": the pods exist when the
// scheduler starts. "arriving": they are created while it runs. "beside others": 10,000 unschedulable pods are in the queue.
func BenchmarkSchedule(b *testing.B) {
	const nodes, pods, hopeless = 1000, 3000, 10000
	for _, how := range []string{"waiting", "arriving", "beside others"} {
		b.Run(how, func(b *testing.B) {
			var took time.Duration
			for range b.N {
				c := newCluster(b, apitest.WithoutGuard())
				api := c.InProcess("bench", "system:admin", "system:masters").Kubernetes()
				inParallel(b, nodes, func(i int) error {
					_, err := api.CoreV1().Nodes().Create(context.Background(), node(fmt.Sprintf("n%04d", i), "32"), metav1.CreateOptions{})
					return err
				})
				create := func() {
					inParallel(b, pods, func(i int) error { return createPod(api, fmt.Sprint("p", i), "100m") })
				}
				switch how {
				case "waiting":
					create()
				case "beside others":
					inParallel(b, hopeless, func(i int) error { return createPod(api, fmt.Sprint("hopeless", i), "64") })
				}
				bound, done := countBound(b, c, pods)
				began := time.Now()
				_, stop := start(b, c.Server, scheduler.Config{})
				if how != "waiting" {
					if how == "beside others" {
						eventuallyAll(b, c, hopeless)
					}
					began = time.Now()
					create()
				}
				<-bound
				took += time.Since(began)
				stop()
				done()
			}
			b.ReportMetric(float64(pods*b.N)/took.Seconds(), "pods/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func createPod(api kubernetes.Interface, name, cpu string) error {
	_, err := api.CoreV1().Pods("default").Create(context.Background(), pod(name, cpu, func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "bench", "group": name[len(name)-1:]}
	}), metav1.CreateOptions{})
	return err
}

// countBound signals when that many pods are bound.
func countBound(b *testing.B, c cluster, pods int) (all <-chan struct{}, done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	factory := c.InProcess("bench", "system:admin", "system:masters").Informers(client.InformerOptions{})
	reached := make(chan struct{})
	var count atomic.Int64
	see := func(old, p *corev1.Pod) {
		if p.Spec.NodeName != "" && (old == nil || old.Spec.NodeName == "") && count.Add(1) == int64(pods) {
			close(reached)
		}
	}
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { see(nil, obj.(*corev1.Pod)) }, UpdateFunc: func(old, obj any) { see(old.(*corev1.Pod), obj.(*corev1.Pod)) }}); err != nil {
		b.Fatal(err)
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	return reached, func() {
		cancel()
		factory.Shutdown()
	}
}

// eventuallyAll waits until that many pods are unschedulable.
func eventuallyAll(b *testing.B, c cluster, pods int) {
	for {
		list, err := c.Client().CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			b.Fatal(err)
		}
		refused := 0
		for i := range list.Items {
			for _, condition := range list.Items[i].Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
					refused++
				}
			}
		}
		if refused >= pods {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func inParallel(b *testing.B, n int, do func(i int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
