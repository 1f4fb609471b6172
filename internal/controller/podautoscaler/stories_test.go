package podautoscaler

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, newTold, stories.Options{Prepare: prepare})
}

// told answers a loop's questions with what ConfigMaps of a story say, in place of the API:
//
//	scale     replicas, or error; selector if it is not app=web; write: the error of a change
//	usage     each pod's containers, as "c: cpu=100m memory=1Gi; d: cpu=50m"; error
//	custom    each pod's value of the custom metric; error
//	object    values of the object or external metric; error
//	history   proposals, ups and downs, each as "replicas@seconds ago"
//	selectors the selectors of other autoscalers
type told struct {
	*loop
	maps corelisters.ConfigMapNamespaceLister
}

func newTold(deps controller.Deps) controller.Loop {
	s := told{newLoop(deps), deps.Informers.Core().V1().ConfigMaps().Lister().ConfigMaps("default")}
	s.readScale, s.writeScale, s.readMetrics = s.scale, s.write, s.metrics
	return controller.Loop{Reconcile: func(key controller.Key, now time.Time) controller.Decision {
		past := s.data("history")
		*s.history(key) = history{numbers(past["proposals"], now), numbers(past["ups"], now), numbers(past["downs"], now)}
		for name, text := range s.data("selectors") {
			selector, _ := parseSelector(text)
			s.selectors.put(controller.Key{Namespace: key.Namespace, Name: name}, selector)
		}
		return s.reconcile(key, now)
	}}
}

func (s told) data(name string) map[string]string {
	m, err := s.maps.Get(name)
	if err != nil {
		return nil
	}
	return m.Data
}

func numbers(text string, now time.Time) (all []numberAt) {
	for _, one := range strings.Fields(text) {
		number, ago, _ := strings.Cut(one, "@")
		n, _ := strconv.Atoi(number)
		seconds, _ := strconv.Atoi(ago)
		all = append(all, numberAt{int32(n), now.Add(-time.Duration(seconds) * time.Second)})
	}
	return all
}

func (s told) scale(q *scaleQuery) controller.Action {
	data := s.data("scale")
	if data["error"] != "" {
		q.err = errors.New(data["error"])
	} else {
		replicas, _ := strconv.Atoi(data["replicas"])
		q.found = &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: int32(replicas)}, Status: autoscalingv1.ScaleStatus{Replicas: int32(replicas), Selector: "app=web"}}
		if selector, ok := data["selector"]; ok {
			q.found.Status.Selector = selector
		}
	}
	return controller.Call("read "+q.String(), nil)
}

func (s told) write(q *scaleQuery, replicas int32) controller.Action {
	if text := s.data("scale")["write"]; text != "" {
		q.err = errors.New(text)
	}
	return controller.Call(fmt.Sprintf("set %v to %d", q, replicas), nil)
}

func (s told) metrics(q *metricsQuery) controller.Action {
	for i, spec := range q.specs {
		m := &q.results[i]
		switch spec.Type {
		case autoscalingv2.ResourceMetricSourceType, autoscalingv2.ContainerResourceMetricSourceType:
			m.usages = map[string]*podUsage{}
			if m.err = s.failure("usage"); m.err == nil {
				for pod, text := range s.data("usage") {
					m.usages[pod] = usageOf(text)
				}
			}
		case autoscalingv2.PodsMetricSourceType:
			m.samples = map[string]sample{}
			if m.err = s.failure("custom"); m.err == nil {
				for pod, text := range s.data("custom") {
					m.samples[pod] = sample{value: thousandths(text)}
				}
			}
		default:
			for _, text := range strings.Fields(s.data("object")["values"]) {
				m.values = append(m.values, thousandths(text))
			}
			m.err = s.failure("object")
		}
	}
	return controller.Call(q.String(), nil)
}

func (s told) failure(name string) error {
	if text := s.data(name)["error"]; text != "" {
		return errors.New(text)
	}
	return nil
}

func thousandths(text string) int64 {
	q := resource.MustParse(text)
	return q.MilliValue()
}

func usageOf(text string) *podUsage {
	u := &podUsage{Timestamp: metav1.NewTime(stories.Epoch), Window: metav1.Duration{Duration: 30 * time.Second}}
	var containers []map[string]any
	for one := range strings.SplitSeq(text, ";") {
		name, usage, _ := strings.Cut(strings.TrimSpace(one), ":")
		amounts := map[string]string{}
		for _, amount := range strings.Fields(usage) {
			kind, value, _ := strings.Cut(amount, "=")
			amounts[kind] = value
		}
		containers = append(containers, map[string]any{"name": name, "usage": amounts})
	}
	data, _ := yaml.Marshal(map[string]any{"containers": containers})
	if err := yaml.Unmarshal(data, u); err != nil {
		panic(err)
	}
	return u
}

// prepare gives autoscalers a target and a metric, 50% of the CPU, and behaviors what the API server gives them. Pods are app=web, request 100m of CPU and
// 1Gi of memory in a container c, and have been ready for an hour, unless the story says otherwise.
func prepare(obj controller.Object) {
	switch o := obj.(type) {
	case *autoscalingv2.HorizontalPodAutoscaler:
		prepareAutoscaler(o)
	case *corev1.Pod:
		preparePod(o)
	}
}

func prepareAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	h.Generation = 1
	if h.Spec.ScaleTargetRef.Kind == "" {
		h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	}
	if h.Spec.MaxReplicas == 0 {
		h.Spec.MaxReplicas = 10
	}
	if h.Spec.Metrics == nil {
		h.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))}}}}
	}
	b := h.Spec.Behavior
	if b == nil {
		return
	}
	if b.ScaleUp == nil {
		b.ScaleUp = &autoscalingv2.HPAScalingRules{}
	}
	if b.ScaleUp.Policies == nil {
		b.ScaleUp.Policies = []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}, {Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}}
	}
	if b.ScaleDown == nil {
		b.ScaleDown = &autoscalingv2.HPAScalingRules{}
	}
	if b.ScaleDown.Policies == nil {
		b.ScaleDown.Policies = []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}}
	}
}

func preparePod(pod *corev1.Pod) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{"app": "web"}
	}
	if pod.Spec.Containers == nil {
		pod.Spec.Containers = []corev1.Container{{Name: "c"}}
	}
	for i := range pod.Spec.Containers {
		if r := &pod.Spec.Containers[i].Resources; r.Requests == nil {
			r.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
		}
	}
	before := metav1.NewTime(stories.Epoch.Add(-time.Hour))
	if pod.Status.Phase == "" {
		pod.Status.Phase = corev1.PodRunning
	}
	if pod.Status.StartTime == nil {
		pod.Status.StartTime = &before
	}
	if pod.Status.Conditions == nil && pod.Status.Phase == corev1.PodRunning {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: before}}
	}
}
