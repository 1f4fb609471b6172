package apps

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// uses annotates all pods with what each of them uses of CPU.
func (c cluster) uses(cpu string) {
	c.Helper()
	for _, pod := range must[*corev1.PodList](c)(c.api.CoreV1().Pods("default").List(c.ctx, metav1.ListOptions{LabelSelector: ofWeb})).Items {
		must[*corev1.Pod](c)(c.api.CoreV1().Pods("default").Patch(c.ctx, pod.Name, types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"annotations":{"hollow.skiff/cpu":%q}}}`, cpu)), metav1.PatchOptions{}))
	}
}

// measuredReady waits until the metrics of as many pods were measured while these were ready.
func (c cluster) measuredReady(want int) {
	c.Helper()
	c.eventually(func() string {
		body, err := c.api.CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods").SetHeader("Accept", "application/json").DoRaw(c.ctx)
		c.ok(err)
		var list struct {
			Items []struct {
				Metadata  struct{ Name string }
				Timestamp metav1.Time
				Window    metav1.Duration
			}
		}
		c.ok(json.Unmarshal(body, &list))
		ready := 0
		for _, item := range list.Items {
			pod := must[*corev1.Pod](c)(c.api.CoreV1().Pods("default").Get(c.ctx, item.Metadata.Name, metav1.GetOptions{}))
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && !item.Timestamp.Time.Before(condition.LastTransitionTime.Add(item.Window.Duration)) {
					ready++
				}
			}
		}
		if ready != want {
			return fmt.Sprintf("%d pods measured while ready, not %d: %s", want, ready, body)
		}
		return ""
	})
}

// An autoscaler follows the load of pods on nodes, by the metrics that the API server has of them.
func TestAutoscaler(t *testing.T) {
	c := start(t)
	replicas := int32(1)
	pods := template("nginx", "hollow.skiff/cpu", "90m")
	pods.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	must[*appsv1.Deployment](c)(c.api.AppsV1().Deployments("default").Create(c.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selectWeb(), Template: pods}}, metav1.CreateOptions{}))
	c.measuredReady(1)
	percent, none := int32(50), int32(0)
	must[*autoscalingv2.HorizontalPodAutoscaler](c)(c.api.AutoscalingV2().HorizontalPodAutoscalers("default").Create(c.ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &none}},
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}}}}}}, metav1.CreateOptions{}))
	has := func(want int32) {
		t.Helper()
		began := time.Now()
		c.eventually(func() string {
			d := must[*appsv1.Deployment](c)(c.api.AppsV1().Deployments("default").Get(c.ctx, "web", metav1.GetOptions{}))
			if d.Status.ReadyReplicas != want {
				h := must[*autoscalingv2.HorizontalPodAutoscaler](c)(c.api.AutoscalingV2().HorizontalPodAutoscalers("default").Get(c.ctx, "web", metav1.GetOptions{}))
				return fmt.Sprintf("%d replicas, not %d: the autoscaler's status is %+v", want, d.Status.ReadyReplicas, h.Status)
			}
			return ""
		})
		t.Logf("%d replicas after %v", want, time.Since(began))
	}
	has(2)
	c.uses("1m")
	has(1)
}
