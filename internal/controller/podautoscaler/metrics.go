package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/kinds"
)

const (
	customGroup   = "custom.metrics.k8s.io"
	externalGroup = "external.metrics.k8s.io"
	// customVersionFor is how long a version of custom metrics is used before it is looked up again.
	customVersionFor = 15 * time.Second
	// leastTimeout is how long the metrics APIs may take if the sync period is shorter.
	leastTimeout = 5 * time.Second
)

// metricsQuery is a question to the metrics APIs for all metrics of an autoscaler.
type metricsQuery struct {
	namespace string
	selector  labels.Selector // of the target's pods
	pods      []*corev1.Pod
	specs     []autoscalingv2.MetricSpec
	share     bool // whether to read the usage of all pods of the namespace, for other autoscalers as well
	now       time.Time

	results []measurement // one for each metric
}

func (q *metricsQuery) String() string {
	return fmt.Sprintf("read %d metrics of pods %v in %s", len(q.specs), q.selector, q.namespace)
}

// measurement is what a metrics API says of one metric.
type measurement struct {
	usages  map[string]*podUsage // of resources, by the pod's name; there may be other pods in it
	samples map[string]sample    // of a custom metric, by the pod's name
	values  []int64              // of an object or external metric, in thousandths
	err     error
	took    time.Duration
}

var errNoUsage = errors.New("no metrics returned from resource metrics API")

// ofResource returns what pods use of a resource, or one of their containers.
func (m *measurement) ofResource(pods []*corev1.Pod, name corev1.ResourceName, container string) (map[string]sample, error) {
	if m.err != nil {
		return nil, m.err
	}
	samples, known := make(map[string]sample, len(pods)), false
	for _, pod := range pods {
		u := m.usages[pod.Name]
		if u == nil {
			continue
		}
		known = true
		if value, ok := u.of(name, container); ok {
			samples[pod.Name] = sample{value, u.Timestamp.Time, u.Window.Duration}
		}
	}
	if !known {
		return nil, errNoUsage
	}
	return samples, nil
}

// sum returns the sum of the values.
func (m *measurement) sum() (sum int64) {
	for _, v := range m.values {
		if v > 0 && sum > math.MaxInt64-v {
			return math.MaxInt64
		}
		sum += v
	}
	return sum
}

// metricsReader asks the metrics APIs.
type metricsReader struct {
	resources *kinds.Finder
	timeout   time.Duration
	usages    usageLists

	mu            sync.Mutex
	customVersion schema.GroupVersion
	customUntil   time.Time // when the version of custom metrics is looked up again
}

// action returns the action that answers a query. It does not fail: the results hold the errors.
func (r *metricsReader) action(q *metricsQuery) controller.Action {
	return controller.Call(q.String(), func(ctx context.Context, c *client.Client) error {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		for i := range q.specs {
			began := time.Now()
			q.results[i] = r.read(ctx, c, q, &q.specs[i])
			q.results[i].took = time.Since(began)
		}
		return nil
	})
}

func (r *metricsReader) read(ctx context.Context, c *client.Client, q *metricsQuery, spec *autoscalingv2.MetricSpec) (m measurement) {
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType, autoscalingv2.ContainerResourceMetricSourceType:
		if m.usages, m.err = r.usages.read(ctx, c, q); m.err != nil {
			m.err = fmt.Errorf("unable to fetch metrics from resource metrics API: %w", m.err)
		}
	case autoscalingv2.PodsMetricSourceType:
		m.samples, m.err = r.readPods(ctx, c, q, spec.Pods)
	case autoscalingv2.ObjectMetricSourceType:
		m.values, m.err = r.readObject(ctx, c, q, spec.Object)
	case autoscalingv2.ExternalMetricSourceType:
		m.values, m.err = r.readExternal(ctx, c, q, spec.External)
	}
	return m
}

func (r *metricsReader) readPods(ctx context.Context, c *client.Client, q *metricsQuery, spec *autoscalingv2.PodsMetricSource) (map[string]sample, error) {
	list, err := r.readCustom(ctx, c, &spec.Metric, map[string]string{"labelSelector": q.selector.String()}, "namespaces", q.namespace, "pods", "*", spec.Metric.Name)
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	known := make(map[string]bool, len(q.pods))
	for _, pod := range q.pods {
		known[pod.Name] = true
	}
	samples := make(map[string]sample, len(list.Items))
	for _, item := range list.Items {
		if !known[item.DescribedObject.Name] {
			continue
		}
		samples[item.DescribedObject.Name] = sample{value: item.Value.MilliValue()} // when it was measured decides nothing
	}
	return samples, nil
}

func (r *metricsReader) readObject(ctx context.Context, c *client.Client, q *metricsQuery, spec *autoscalingv2.ObjectMetricSource) ([]int64, error) {
	kind := schema.FromAPIVersionAndKind(spec.DescribedObject.APIVersion, spec.DescribedObject.Kind).GroupKind()
	path := []string{"namespaces", q.namespace, "metrics", spec.Metric.Name} // of the namespace itself, whatever its name in the reference
	if kind != (schema.GroupKind{Kind: "Namespace"}) {
		of, _, err := r.resources.Find(ctx, c, kind.WithVersion(""))
		if err != nil {
			return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: unable to map kind %v to resource: %w", kind, err)
		}
		path = []string{"namespaces", q.namespace, of.GroupResource().String(), spec.DescribedObject.Name, spec.Metric.Name}
	}
	list, err := r.readCustom(ctx, c, &spec.Metric, map[string]string{}, path...)
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: the custom metrics API server returned %d results when we asked for exactly one", len(list.Items))
	}
	return []int64{list.Items[0].Value.MilliValue()}, nil
}

func (r *metricsReader) readCustom(ctx context.Context, c *client.Client, metric *autoscalingv2.MetricIdentifier, params map[string]string, path ...string) (*customMetricList, error) {
	list := &customMetricList{}
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		return nil, err
	}
	if metric.Selector != nil {
		params["metricLabelSelector"] = selector.String()
	}
	gv, err := r.customVersionOf(ctx, c)
	if err == nil {
		err = kinds.Get(ctx, c, list, params, append([]string{kinds.Path(gv)}, path...)...)
	}
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	return list, nil
}

// customVersionOf returns the version of custom metrics to read: the preferred one, if it is known.
func (r *metricsReader) customVersionOf(ctx context.Context, c *client.Client) (schema.GroupVersion, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.customUntil) {
		return r.customVersion, nil
	}
	versions, err := kinds.Versions(ctx, c, customGroup)
	if apierrors.IsNotFound(err) {
		return schema.GroupVersion{}, fmt.Errorf("no custom metrics API (%s) registered", customGroup)
	}
	if err != nil {
		return schema.GroupVersion{}, err
	}
	for _, gv := range versions {
		if gv.Version == "v1beta2" || gv.Version == "v1beta1" {
			r.customVersion, r.customUntil = gv, now.Add(customVersionFor)
			return gv, nil
		}
	}
	return schema.GroupVersion{}, errors.New("no known available metric versions found")
}

func (r *metricsReader) readExternal(ctx context.Context, c *client.Client, q *metricsQuery, spec *autoscalingv2.ExternalMetricSource) (values []int64, err error) {
	selector, err := metav1.LabelSelectorAsSelector(spec.Metric.Selector)
	if err != nil {
		return nil, err
	}
	params := map[string]string{}
	if spec.Metric.Selector != nil {
		params["labelSelector"] = selector.String()
	}
	list := &externalMetricList{}
	if err := kinds.Get(ctx, c, list, params, kinds.Path(schema.GroupVersion{Group: externalGroup, Version: "v1beta1"}), "namespaces", q.namespace, spec.Metric.Name); err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from external metrics API")
	}
	for _, item := range list.Items {
		values = append(values, item.Value.MilliValue())
	}
	return values, nil
}
