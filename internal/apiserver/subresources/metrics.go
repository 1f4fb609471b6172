package subresources

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/cache"
	catalogmetrics "skiff/internal/catalog/metrics"
	"skiff/internal/usage"
)

// meter serves metrics.k8s.io with what nodes measure.
type meter struct {
	*usage.Meter
	api *verbs.API
}

// readings returns what reads the usage of a node: from local if that knows the node, else from the node's kubelet.
func (c *Connector) readings(local func(node string) *usage.Reading) func(context.Context, string) (*usage.Reading, error) {
	return func(ctx context.Context, node string) (*usage.Reading, error) {
		if local != nil {
			if r := local(node); r != nil {
				return r, nil
			}
		}
		return c.readUsage(ctx, node)
	}
}

// readUsage asks a node's kubelet for what the node and its containers use.
func (c *Connector) readUsage(ctx context.Context, node string) (*usage.Reading, error) {
	k, err := c.kubeletOf(ctx, node)
	if err != nil {
		return nil, err
	}
	kubelets, err := c.currentKubeletTransports()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url("/stats/summary", url.Values{"only_cpu_and_memory": {"true"}}).String(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := kubelets.verified.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		const shown = 1 << 10
		text, _ := io.ReadAll(io.LimitReader(answer.Body, shown))
		return nil, fmt.Errorf("the kubelet answered /stats/summary with %s: %s", answer.Status, text)
	}
	return usage.ReadSummary(answer.Body)
}

// serve returns the handler of a resource of the group: get and list.
func (m *meter) serve(get, list func(*verbs.Request) (*measured, error)) verbs.Handler {
	return func(rq *verbs.Request) error {
		answer := get
		switch {
		case rq.Route.Rest != "" || rq.Route.Subresource != "":
			return response.ErrNotFound
		case rq.Route.Verb == "list":
			answer = list
		case rq.Route.Verb == "watch":
			return apierrors.NewMethodNotSupported(rq.Endpoint.Info.GVR.GroupResource(), "watch")
		case rq.Route.Verb != "get":
			return response.ErrMethodNotAllowed
		}
		found, err := answer(rq)
		if err != nil {
			return err
		}
		found.columns, found.rows = catalogmetrics.Columns(found.objects), catalogmetrics.Rows(found.objects)
		return found.send(rq)
	}
}

func (m *meter) getNode(rq *verbs.Request) (*measured, error) {
	if err := negotiate(rq); err != nil {
		return nil, err
	}
	it, err := m.api.Endpoint("", "v1", "nodes").Registry.Get(rq.Ctx, "", rq.Route.Name, "")
	if err != nil {
		return nil, err
	}
	return m.one(rq, m.nodes, it, rq.Route.Name)
}

func (m *meter) getPod(rq *verbs.Request) (*measured, error) {
	if err := negotiate(rq); err != nil {
		return nil, err
	}
	it, err := m.api.Endpoint("", "v1", "pods").Registry.Get(rq.Ctx, rq.Route.Namespace, rq.Route.Name, "")
	if err != nil {
		return nil, err
	}
	return m.one(rq, m.pods, it, rq.Route.Namespace+"/"+rq.Route.Name)
}

// one returns the metrics of one node or pod. name is what the error calls it if they are not known.
func (m *meter) one(rq *verbs.Request, measure func(context.Context, []*cache.Item) (*measured, error), it *cache.Item, name string) (*measured, error) {
	found, err := measure(rq.Ctx, []*cache.Item{it})
	if err != nil {
		return nil, err
	}
	if len(found.objects) == 0 {
		return nil, apierrors.NewNotFound(rq.Endpoint.Info.GVR.GroupResource(), name)
	}
	found.single = true
	return found, nil
}

func (m *meter) listNodes(rq *verbs.Request) (*measured, error) {
	return m.selected(rq, "nodes", m.nodes)
}
func (m *meter) listPods(rq *verbs.Request) (*measured, error) { return m.selected(rq, "pods", m.pods) }

// selected returns the metrics of the nodes or pods that a list selects.
func (m *meter) selected(rq *verbs.Request, plural string, measure func(context.Context, []*cache.Item) (*measured, error)) (*measured, error) {
	opts, err := negotiateList(rq)
	if err != nil {
		return nil, err
	}
	of := m.api.Endpoint("", "v1", plural).Registry
	// Of the fields of pods and nodes only those count that metrics have, too.
	selector, err := of.NewSelector(rq.Endpoint.Info, rq.Route.Namespace, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return nil, err
	}
	page, err := of.List(rq.Ctx, registry.List{Selector: selector})
	if err != nil {
		return nil, err
	}
	return measure(rq.Ctx, page.Items)
}

// nodes measures nodes.
func (m *meter) nodes(ctx context.Context, items []*cache.Item) (*measured, error) {
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = it.Name
	}
	all, err := m.Measure(ctx, names)
	if err != nil {
		return nil, err
	}
	list := &metricsv1beta1.NodeMetricsList{Items: []metricsv1beta1.NodeMetrics{}}
	for _, it := range items {
		if n := all[it.Name]; n != nil && n.Node != nil {
			list.Items = append(list.Items, metricsv1beta1.NodeMetrics{ObjectMeta: metadataOf(it), Timestamp: metav1.NewTime(n.Node.At),
				Window: metav1.Duration{Duration: n.Node.Window}, Usage: amounts(*n.Node)})
		}
	}
	found := &measured{list: list}
	for i := range list.Items {
		found.objects = append(found.objects, &list.Items[i])
	}
	return found, nil
}

// pods measures pods.
func (m *meter) pods(ctx context.Context, items []*cache.Item) (*measured, error) {
	nodeOf := make([]string, len(items))
	field := m.nodeField()
	var names []string
	known := map[string]bool{}
	for i, it := range items {
		node := it.Value(field)
		if nodeOf[i] = node; node != "" && !known[node] {
			known[node] = true
			names = append(names, node)
		}
	}
	all, err := m.Measure(ctx, names)
	if err != nil {
		return nil, err
	}
	list := &metricsv1beta1.PodMetricsList{Items: []metricsv1beta1.PodMetrics{}}
	for i, it := range items {
		n := all[nodeOf[i]]
		if n == nil {
			continue
		}
		if containers := n.Pods[usage.PodKey{Namespace: it.Namespace, Name: it.Name}]; len(containers) > 0 {
			list.Items = append(list.Items, podMetrics(it, containers))
		}
	}
	found := &measured{list: list}
	for i := range list.Items {
		found.objects = append(found.objects, &list.Items[i])
	}
	return found, nil
}

// nodeField returns the index of spec.nodeName among the fields of pods.
func (m *meter) nodeField() int {
	fields := m.api.Endpoint("", "v1", "pods").Info.Fields
	for i, f := range fields {
		if f.Name == "spec.nodeName" {
			return i
		}
	}
	panic("pods cannot be selected by spec.nodeName")
}

// podMetrics returns the metrics of a pod. Its time and window are those of the container that was measured first.
func podMetrics(it *cache.Item, containers []usage.ContainerMetrics) metricsv1beta1.PodMetrics {
	first := slices.MinFunc(containers, func(a, b usage.ContainerMetrics) int { return a.At.Compare(b.At) })
	p := metricsv1beta1.PodMetrics{ObjectMeta: metadataOf(it), Timestamp: metav1.NewTime(first.At), Window: metav1.Duration{Duration: first.Window}}
	for _, c := range containers {
		p.Containers = append(p.Containers, metricsv1beta1.ContainerMetrics{Name: c.Name, Usage: amounts(c.Metrics)})
	}
	return p
}

// metadataOf returns the metadata of metrics of a node or pod, which are as old as the response.
func metadataOf(it *cache.Item) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: it.Namespace, Name: it.Name, Labels: it.Labels, CreationTimestamp: metav1.NewTime(time.Now())}
}

func amounts(m usage.Metrics) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(m.CPU), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(m.Memory), resource.BinarySI),
	}
}
