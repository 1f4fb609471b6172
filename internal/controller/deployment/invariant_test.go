package deployment_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/deployment"
	"skiff/internal/controller/replicaset"
	"skiff/test/seed"
)

// Whatever is rolled out, whichever pods become ready, and however often the loops are restarted: there are never more pods than replicas and maxSurge, never
// fewer available ones than replicas less maxUnavailable, and in the end all is rolled out.
func TestInvariants(t *testing.T) {
	seed := seed.New(t)
	for _, limits := range [][2]int32{{0, 1}, {1, 0}, {3, 2}, {2, 5}} {
		t.Run(fmt.Sprintf("surge %d, unavailable %d", limits[0], limits[1]), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(limits[0])))
			rollAtRandom(t, random, limits[0], limits[1])
		})
	}
}

func rollAtRandom(t *testing.T, random *rand.Rand, surge, unavailable int32) {
	const replicas = 8
	c := cluster{t, apitest.Start(t)}
	run := func() func() { return controllertest.Run(t, c.server, deployment.New, replicaset.New) }
	stop := run()
	c.create(replicas, func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(surge)), MaxUnavailable: ptr.To(intstr.FromInt32(unavailable))}
		d.Spec.RevisionHistoryLimit = ptr.To(int32(2))
	})
	c.rolledOut(all)
	seen := watchPods(c)
	for range 80 {
		switch n := random.IntN(10); {
		case n < 2:
			c.setImage(fmt.Sprint("v", random.IntN(4))) // new ones, and back to former ones
		case n < 8:
			c.bringUp(func(p *corev1.Pod) bool { return !image("v0")(p) && random.IntN(3) > 0 }) // v0 never becomes ready
		default:
			stop()
			stop = run()
		}
		time.Sleep(time.Duration(random.IntN(15)) * time.Millisecond) // a moment for something to happen, or to begin
	}
	c.setImage("v9")
	c.rolledOut(image("v9"))
	controllertest.Eventually(t, func() string {
		sizes := c.sizes()
		if pods := c.pods(); len(pods) != replicas || sizes["v9"] != replicas || len(sizes) > 3 {
			return fmt.Sprintf("%d pods, ReplicaSets %v", len(pods), sizes)
		}
		return ""
	})
	stop()
	most, fewest, created := seen()
	if most > int(replicas+surge) {
		t.Errorf("there were %d pods", most)
	}
	if fewest < int(replicas-unavailable) {
		t.Errorf("there were only %d available pods", fewest)
	}
	t.Logf("%d pods, at most %d at a time, at least %d of them available", created, most, fewest)
}

// watchPods watches all pods; the function it returns reports how many there were at most, and available at least.
func watchPods(c cluster) func() (most, fewest, created int) {
	c.Helper()
	client := c.server.Client().CoreV1().Pods("default")
	list, err := client.List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	watching, err := client.Watch(c.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		c.Fatal(err)
	}
	there, available := map[types.UID]bool{}, 0
	for _, p := range list.Items {
		there[p.UID] = p.Status.Phase == corev1.PodRunning
		available++
	}
	most, fewest, created := len(there), available, 0
	var done sync.WaitGroup
	done.Go(func() {
		for e := range watching.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok || pod.Name == lastPod {
				watching.Stop()
				continue
			}
			ready, known := there[pod.UID]
			switch now := pod.Status.Phase == corev1.PodRunning; {
			case e.Type == watch.Deleted:
				delete(there, pod.UID)
				if ready {
					available--
				}
			case !known:
				created++
				fallthrough
			default:
				there[pod.UID] = now
				if now && !ready {
					available++
				}
			}
			most, fewest = max(most, len(there)), min(fewest, available)
		}
	})
	return func() (int, int, int) {
		last := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: lastPod}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}
		if _, err := client.Create(c.Context(), last, metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
		done.Wait()
		return most, fewest, created
	}
}

// lastPod is the name of the pod that ends the count.
const lastPod = "last"
