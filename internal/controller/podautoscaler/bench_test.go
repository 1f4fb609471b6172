package podautoscaler_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/podautoscaler"
)

const (
	benchAutoscalers = 1000
	benchPods        = 2 // of each
	// benchPeriod is the sync period of the benchmark. What a sync costs is then counted as if it was every 15 s.
	benchPeriod = 2 * time.Second
)

// usageOfAll returns a list of what all pods of the benchmark use.
func usageOfAll(cpu string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[`)
	for i := range benchAutoscalers * benchPods {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `{"metadata":{"name":"web-%d-%d","namespace":"default","creationTimestamp":"2030-01-01T00:00:00Z","labels":{"app":"web-%d"}},"timestamp":"2030-01-01T00:00:00Z","window":"15s",`+
			`"containers":[{"name":"c","usage":{"cpu":"%s","memory":"20Mi"}}]}`, i/benchPods, i%benchPods, i/benchPods, cpu)
	}
	b.WriteString("]}")
	return b.Bytes()
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it does not fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkThousand measures what part of a core 1,000 autoscalers of one namespace take with a sync period of 15 s, with the API server's part and that of
// the server of metrics: while nothing changes, and while the usage of all pods changes all the time, so that every status is written at every sync.
func BenchmarkThousand(b *testing.B) {
	for name, lists := range map[string][][]byte{"steady": {usageOfAll("50m")}, "changing": {usageOfAll("50m"), usageOfAll("51m"), usageOfAll("52m")}} {
		b.Run(name, func(b *testing.B) {
			server := apitest.Start(b, apitest.WithoutGuard())
			serveUsage(b, server, lists)
			createTargets(b, server)
			var evaluated atomic.Int64
			controllertest.Run(b, server, func(deps controller.Deps) controller.Loop {
				deps.Config.PodAutoscalerSyncPeriod = controller.Seconds(benchPeriod.Seconds())
				loop := podautoscaler.New(deps)
				reconcile := loop.Reconcile
				loop.Reconcile = func(key controller.Key, now time.Time) controller.Decision {
					evaluated.Add(1)
					return reconcile(key, now)
				}
				return loop
			})
			controllertest.Eventually(b, func() string {
				if n := evaluated.Load(); n < 3*benchAutoscalers {
					return fmt.Sprintf("3 syncs, there were %d evaluations", n)
				}
				return ""
			})
			first := one(b, server)
			if len(first.Status.CurrentMetrics) != 1 || first.Status.CurrentMetrics[0].Resource == nil {
				b.Fatalf("%+v", first.Status)
			}
			b.ResetTimer()
			before, cpu, written := evaluated.Load(), cpuTime(), revision(b, server)
			for b.Loop() {
				want := evaluated.Load() + benchAutoscalers
				for evaluated.Load() < want {
					time.Sleep(time.Millisecond)
				}
			}
			spent, n := cpuTime()-cpu, evaluated.Load()-before
			b.ReportMetric(float64(revision(b, server)-written)/float64(n), "writes/evaluation")
			each := spent / time.Duration(n)
			b.ReportMetric(float64(each.Microseconds()), "µs-CPU/evaluation")
			b.ReportMetric(100*float64(each)*benchAutoscalers/float64(15*time.Second), "%-of-a-core")
		})
	}
}

// one returns one of the autoscalers.
func one(b *testing.B, server *apitest.Server) *autoscalingv2.HorizontalPodAutoscaler {
	b.Helper()
	h, err := server.Client().AutoscalingV2().HorizontalPodAutoscalers("default").Get(b.Context(), "web-7", metav1.GetOptions{})
	ok(b, err)
	return h
}

// revision returns how many writes the store has had.
func revision(b *testing.B, server *apitest.Server) int64 {
	b.Helper()
	list, err := server.Client().AutoscalingV2().HorizontalPodAutoscalers("default").List(b.Context(), metav1.ListOptions{})
	ok(b, err)
	n, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	ok(b, err)
	return n
}

// serveUsage serves metrics.k8s.io with lists, one after the other.
func serveUsage(b *testing.B, server *apitest.Server, lists [][]byte) {
	var next atomic.Int64
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/pods") {
			_, _ = w.Write([]byte("{}"))
			return
		}
		_, _ = w.Write(lists[int(next.Add(1))%len(lists)])
	}))
	b.Cleanup(func() {
		backend.CloseClientConnections()
		backend.Close()
	})
	c := server.Client()
	_, err := c.CoreV1().Services("default").Create(b.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}, metav1.CreateOptions{})
	ok(b, err)
	body, err := json.Marshal(map[string]any{"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": "default", "name": "metrics", "port": backend.Listener.Addr().(*net.TCPAddr).Port}}})
	ok(b, err)
	ok(b, c.CoreV1().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader("Content-Type", "application/json").Body(body).Do(b.Context()).Error())
	controllertest.Eventually(b, func() string {
		if err := c.Discovery().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods").Do(b.Context()).Error(); err != nil {
			return "metrics to be served: " + err.Error()
		}
		return ""
	})
}

// createTargets creates the Deployments, their pods, and an autoscaler of each.
func createTargets(b *testing.B, server *apitest.Server) {
	c := server.InProcess("bench", "bench", "system:masters").Kubernetes()
	replicas := int32(benchPods)
	started := metav1.NewTime(time.Now().Add(-time.Hour))
	create := func(i int) error {
		name := fmt.Sprint("web-", i)
		app := map[string]string{"app": name}
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}}}}
		if _, err := c.AppsV1().Deployments("default").Create(b.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app}, Template: template}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		for j := range benchPods {
			pod, err := c.CoreV1().Pods("default").Create(b.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, j), Labels: app}, Spec: template.Spec}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started}}}
			if _, err := c.CoreV1().Pods("default").UpdateStatus(b.Context(), pod, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		_, err := c.AutoscalingV2().HorizontalPodAutoscalers("default").Create(b.Context(), &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 5, Metrics: cpu(50), ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}}}, metav1.CreateOptions{})
		return err
	}
	errs := make([]error, benchAutoscalers)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range errs {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = create(i)
			<-slots
		})
	}
	wg.Wait()
	for _, err := range errs {
		ok(b, err)
	}
}
