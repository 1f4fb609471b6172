package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

func benchmarkNode(i int) *corev1.Node {
	name := fmt.Sprintf("node-%05d", i)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110")}
	return n
}

func benchmarkPod(i int, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i)), Labels: labels},
		Spec: corev1.PodSpec{SchedulerName: defaultSchedulerName, Containers: []corev1.Container{{Name: "c", Image: "registry.example/image:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("16Mi")}}}}}}
}

// BenchmarkCycle measures a decision alone, in memory: snapshot, filters, scores, assuming the pod.
func BenchmarkCycle(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		for _, sort := range []string{"alike", "spread", "mixed", "without memory"} {
			b.Run(fmt.Sprintf("%s on %d nodes", sort, nodes), func(b *testing.B) {
				profiles, _ := defaultProfiles(b, nil)
				profile := profiles[defaultSchedulerName]
				c := &cycle{}
				c.results.disabled = sort == "without memory"
				cl := newCluster(byApp{})
				for i := range nodes {
					cl.putNode(benchmarkNode(i))
				}
				b.ReportAllocs()
				b.ResetTimer()
				var each []time.Duration
				for i := range b.N {
					if i%(nodes*50) == 0 && i > 0 { // the nodes are full: start anew
						b.StopTimer()
						for _, p := range cl.pods {
							cl.removePod(p.UID)
						}
						b.StartTimer()
					}
					var labels map[string]string
					switch sort {
					case "spread":
						labels = map[string]string{"app": "one"}
					case "mixed":
						labels = map[string]string{"app": fmt.Sprint("app-", i%20)}
					}
					pod := scheduling.NewPod(benchmarkPod(i, labels))
					began := time.Now()
					v := view{}
					v.snapshot, v.order = cl.snapshot()
					out, err := c.decide(profile, pod, v)
					if err != nil || out.node == nil {
						b.Fatal(err, out.message())
					}
					each = append(each, time.Since(began))
					object := *pod.Pod
					object.Spec.NodeName = out.node.Name
					assumed := *pod
					assumed.Pod = &object
					if err := cl.assume(&assumed); err != nil {
						b.Fatal(err)
					}
				}
				slices.Sort(each)
				b.ReportMetric(float64(each[len(each)*99/100]), "p99-ns")
			})
		}
	}
}
