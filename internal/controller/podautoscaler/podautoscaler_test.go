package podautoscaler_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/deployment"
	"skiff/internal/controller/podautoscaler"
	"skiff/internal/controller/replicaset"
)

var app = map[string]string{"app": "web"}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// metricsAPI is an aggregated API server for the metrics of pods, and of others. All pods use the same.
type metricsAPI struct {
	client kubernetes.Interface

	mu     sync.Mutex
	cpu    string // that each pod uses
	custom string // value of any custom metric of pods
	values string // value of any other custom or external metric
	asked  []string
}

func (s *metricsAPI) set(change func(*metricsAPI)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *metricsAPI) requests(part string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.asked {
		if strings.Contains(r, part) {
			n++
		}
	}
	return n
}

func (s *metricsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.String())
	cpu, custom, values := s.cpu, s.custom, s.values
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	items, path := []any{}, strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	now := metav1.Now()
	pods := func(item func(pod *corev1.Pod) any) {
		selector, _ := labels.Parse(r.URL.Query().Get("labelSelector"))
		list, err := s.client.CoreV1().Pods(path[4]).List(r.Context(), metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		for i := range list.Items {
			items = append(items, item(&list.Items[i]))
		}
	}
	switch {
	case len(path) < 6: // discovery
	case path[1] == "metrics.k8s.io":
		pods(func(pod *corev1.Pod) any {
			return map[string]any{"metadata": pod.ObjectMeta, "timestamp": now, "window": "15s", "containers": []any{map[string]any{"name": "c", "usage": map[string]string{"cpu": cpu, "memory": "1Mi"}}}}
		})
	case path[1] == "custom.metrics.k8s.io" && path[5] == "pods":
		pods(func(pod *corev1.Pod) any {
			return map[string]any{"describedObject": map[string]string{"kind": "Pod", "name": pod.Name}, "metric": map[string]string{"name": path[7]}, "timestamp": now, "value": custom}
		})
	default:
		items = append(items, map[string]any{"timestamp": now, "value": values})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "List", "apiVersion": strings.Join(path[1:min(3, len(path))], "/"), "items": items})
}

// cluster is a server with the loop, and one for metrics.
type cluster struct {
	testing.TB
	*apitest.Server
	metrics *metricsAPI
	counts  *controller.Metrics
}

// start runs the loop with others, and serves groups of metrics.
func start(t testing.TB, groups []schema.GroupVersion, loops ...func(controller.Deps) controller.Loop) cluster {
	t.Helper()
	server := apitest.Start(t)
	s := &metricsAPI{client: server.Client(), cpu: "50m", custom: "1", values: "1"}
	backend := httptest.NewTLSServer(s)
	t.Cleanup(func() {
		backend.CloseClientConnections()
		backend.Close()
	})
	c := server.Client()
	_, err := c.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}, metav1.CreateOptions{})
	ok(t, err)
	for _, gv := range groups {
		body, err := json.Marshal(map[string]any{"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "metadata": map[string]any{"name": gv.Version + "." + gv.Group},
			"spec": map[string]any{"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
				"service": map[string]any{"namespace": "default", "name": "metrics", "port": backend.Listener.Addr().(*net.TCPAddr).Port}}})
		ok(t, err)
		ok(t, c.CoreV1().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error())
		controllertest.Eventually(t, func() string {
			if err := c.Discovery().RESTClient().Get().AbsPath("/apis/" + gv.String() + "/namespaces/default/any").Do(t.Context()).Error(); err != nil {
				return "metrics to be served: " + err.Error()
			}
			return ""
		})
	}
	counts := controller.NewMetrics()
	controllertest.Run(t, server, append(loops, func(deps controller.Deps) controller.Loop {
		deps.Config.PodAutoscalerSyncPeriod, deps.Config.PodAutoscalerStabilization = 0.1, 0.3
		deps.Config.PodAutoscalerCPUInitialization = 0.001 // the pods of tests are young
		deps.Metrics = counts
		return podautoscaler.New(deps)
	})...)
	return cluster{t, server, s, counts}
}

var resourceMetrics = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

func (c cluster) deployment(name string, replicas int32) {
	c.Helper()
	_, err := c.Client().AppsV1().Deployments("default").Create(c.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}}}}}}, metav1.CreateOptions{})
	ok(c, err)
}

// autoscaler creates an autoscaler of a Deployment.
func (c cluster) autoscaler(name string, spec autoscalingv2.HorizontalPodAutoscalerSpec) {
	c.Helper()
	if spec.ScaleTargetRef.Kind == "" {
		spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	}
	_, err := c.Client().AutoscalingV2().HorizontalPodAutoscalers("default").Create(c.Context(), &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	ok(c, err)
}

// makeReady makes all pods ready, as kubelets would, and returns how many there are.
func (c cluster) makeReady() int {
	c.Helper()
	list, err := c.Client().CoreV1().Pods("default").List(c.Context(), metav1.ListOptions{})
	ok(c, err)
	for _, pod := range list.Items {
		if pod.Status.Phase == corev1.PodPending {
			started := metav1.NewTime(time.Now().Add(-time.Hour))
			pod.Status.StartTime = &started
			controllertest.ReportPhase(c, c.Server, &pod, corev1.PodRunning, "")
		}
	}
	return len(list.Items)
}

func (c cluster) pods(want int) {
	c.Helper()
	controllertest.Eventually(c, func() string {
		if got := c.makeReady(); got != want {
			return fmt.Sprintf("%d pods, not %d", want, got)
		}
		return ""
	})
}

// condition waits for a condition of an autoscaler.
func (c cluster) condition(name string, kind autoscalingv2.HorizontalPodAutoscalerConditionType, reason string) {
	c.Helper()
	controllertest.Eventually(c, func() string {
		h, err := c.Client().AutoscalingV2().HorizontalPodAutoscalers("default").Get(c.Context(), name, metav1.GetOptions{})
		ok(c, err)
		for _, condition := range h.Status.Conditions {
			if condition.Type == kind && condition.Reason == reason {
				return ""
			}
		}
		return fmt.Sprintf("condition %s with reason %s in %+v", kind, reason, h.Status)
	})
}

// counted returns the sum of a metric of the loop, for one value of its label action.
func (c cluster) counted(name, action string) (sum float64) {
	c.Helper()
	families, err := c.counts.Gather()
	ok(c, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := action == ""
			for _, l := range m.GetLabel() {
				has = has || l.GetName() == "action" && l.GetValue() == action
			}
			if f.GetName() == "horizontal_pod_autoscaler_controller_"+name && has {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func cpu(percent int32) []autoscalingv2.MetricSpec {
	return []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU,
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}}}}
}

// A Deployment under load grows, and shrinks when the load has gone.
func TestDeployment(t *testing.T) {
	c := start(t, []schema.GroupVersion{resourceMetrics}, deployment.New, replicaset.New)
	c.deployment("web", 2)
	c.pods(2)
	c.autoscaler("web", autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 6, Metrics: cpu(50)})
	c.condition("web", autoscalingv2.ScalingActive, "ValidMetricFound")
	c.pods(2)
	c.metrics.set(func(s *metricsAPI) { s.cpu = "100m" })
	c.pods(6)
	c.condition("web", autoscalingv2.ScalingLimited, "TooManyReplicas")
	c.metrics.set(func(s *metricsAPI) { s.cpu = "1m" })
	c.pods(1)
	c.condition("web", autoscalingv2.ScalingLimited, "DesiredWithinRange")
	events, err := c.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=HorizontalPodAutoscaler,reason=SuccessfulRescale"})
	ok(t, err)
	if len(events.Items) == 0 || events.Items[0].Source.Component != "horizontal-pod-autoscaler" {
		t.Errorf("events: %+v", events.Items)
	}
	if up, down := c.counted("reconciliations_total", "scale_up"), c.counted("metric_computation_total", "scale_down"); up == 0 || down == 0 || c.counted("num_horizontal_pod_autoscalers", "") != 1 {
		t.Errorf("counted %v and %v", up, down)
	}
	// Whoever scales to zero turns the autoscaler off.
	ok(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the Deployment's loop writes, too
		scale, err := c.Client().AppsV1().Deployments("default").GetScale(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas = 0
		_, err = c.Client().AppsV1().Deployments("default").UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{})
		return err
	}))
	c.condition("web", autoscalingv2.ScalingActive, "ScalingDisabled")
	c.pods(0)
}

// Without a metrics API an autoscaler says so, and works as soon as there is one.
func TestNoMetrics(t *testing.T) {
	c := start(t, nil, deployment.New, replicaset.New)
	c.deployment("web", 1)
	c.pods(1)
	c.autoscaler("web", autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 6, Metrics: cpu(50)})
	c.condition("web", autoscalingv2.ScalingActive, "FailedGetResourceMetric")
	c.autoscaler("none", autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 6, Metrics: cpu(50)})
	c.condition("none", autoscalingv2.AbleToScale, "FailedGetScale")
	h := c.Client().AutoscalingV2().HorizontalPodAutoscalers("default")
	ok(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the loop writes its status
		one, err := h.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		one.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "qps"},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewQuantity(1, resource.DecimalSI)}}}}
		_, err = h.Update(t.Context(), one, metav1.UpdateOptions{})
		return err
	}))
	c.condition("web", autoscalingv2.ScalingActive, "FailedGetPodsMetric")
}

// A custom resource is scaled by an external metric, to zero and back.
func TestCustomResource(t *testing.T) {
	c := start(t, []schema.GroupVersion{{Group: "external.metrics.k8s.io", Version: "v1beta1"}})
	objects, err := dynamic.NewForConfig(c.Config())
	ok(t, err)
	definition := &unstructured.Unstructured{}
	ok(t, json.Unmarshal([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"webs.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"webs","singular":"web","kind":"Web","listKind":"WebList"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
		"subresources":{"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.size","labelSelectorPath":".status.selector"}}}]}}`), definition))
	_, err = objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(t.Context(), definition, metav1.CreateOptions{})
	ok(t, err)
	webs := objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "webs"}).Namespace("default")
	web := &unstructured.Unstructured{}
	ok(t, json.Unmarshal([]byte(`{"apiVersion":"example.com/v1","kind":"Web","metadata":{"name":"w"},"spec":{"size":1},"status":{"size":1,"selector":"app=web"}}`), web))
	controllertest.Eventually(t, func() string {
		if _, err := webs.Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	size := func(want int64) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			w, err := webs.Get(t.Context(), "w", metav1.GetOptions{})
			ok(t, err)
			if got, _, _ := unstructured.NestedInt64(w.Object, "spec", "size"); got != want {
				return fmt.Sprintf("size %d, not %d", want, got)
			}
			return ""
		})
	}
	c.metrics.set(func(s *metricsAPI) { s.values = "25" })
	zero := int32(0)
	c.autoscaler("w", autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &zero, MaxReplicas: 9, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Web", Name: "w"},
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "depth", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"queue": "q"}}},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewQuantity(10, resource.DecimalSI)}}}}})
	size(3)
	if c.metrics.requests("/depth?labelSelector=queue%3Dq") == 0 {
		t.Errorf("requests: %v", c.metrics.asked)
	}
	c.metrics.set(func(s *metricsAPI) { s.values = "0" })
	size(0)
	c.condition("w", autoscalingv2.ScaledToZero, "ScaledToZero")
	c.metrics.set(func(s *metricsAPI) { s.values = "5" })
	size(1)
}

// Metrics of pods and of objects are read from the custom metrics API.
func TestCustomMetrics(t *testing.T) {
	c := start(t, []schema.GroupVersion{{Group: "custom.metrics.k8s.io", Version: "v1beta2"}}, deployment.New, replicaset.New)
	c.deployment("web", 2)
	c.pods(2)
	average := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewQuantity(10, resource.DecimalSI)}
	c.metrics.set(func(s *metricsAPI) { s.custom, s.values = "15", "50" })
	c.autoscaler("web", autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 9, Metrics: []autoscalingv2.MetricSpec{
		{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "qps"}, Target: average}},
		{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "hits"}, Target: average,
			DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "main"}}}}})
	controllertest.Eventually(t, func() string {
		if n := c.makeReady(); n < 5 {
			return fmt.Sprintf("5 pods or more, not %d", n)
		}
		return ""
	})
	for _, request := range []string{"/namespaces/default/pods/%2A/qps?labelSelector=app%3Dweb", "/namespaces/default/ingresses.networking.k8s.io/main/hits"} {
		if c.metrics.requests(request) == 0 && c.metrics.requests(strings.ReplaceAll(request, "%2A", "*")) == 0 {
			t.Errorf("not asked for %s: %v", request, c.metrics.asked)
		}
	}
}

// Autoscalers of the same pods are told so, until only one is left.
func TestSamePods(t *testing.T) {
	c := start(t, []schema.GroupVersion{resourceMetrics}, deployment.New, replicaset.New)
	c.deployment("web", 1)
	c.pods(1)
	for i := range 3 {
		c.autoscaler(fmt.Sprint("web-", i), autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 6, Metrics: cpu(50),
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}})
	}
	for i := range 3 {
		c.condition(fmt.Sprint("web-", i), autoscalingv2.ScalingActive, "AmbiguousSelector")
	}
	for i := 1; i < 3; i++ {
		ok(t, c.Client().AutoscalingV2().HorizontalPodAutoscalers("default").Delete(t.Context(), fmt.Sprint("web-", i), metav1.DeleteOptions{}))
	}
	c.condition("web-0", autoscalingv2.ScalingActive, "ValidMetricFound")
}
