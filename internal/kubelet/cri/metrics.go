package cri

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// metrics are the metrics of calls to the runtime, under Kubernetes' names.
type metrics struct {
	total, errors *prometheus.CounterVec
	duration      *prometheus.HistogramVec
}

func newMetrics() *metrics {
	labels := []string{"operation_type"}
	return &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_total",
			Help: "[ALPHA] Cumulative number of runtime operations by operation type."}, labels),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_errors_total",
			Help: "[ALPHA] Cumulative number of runtime operation errors by operation type."}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_runtime_operations_duration_seconds",
			Help: "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.", Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14)}, labels),
	}
}

// Describe implements prometheus.Collector.
func (c *Client) Describe(to chan<- *prometheus.Desc) {
	c.metrics.total.Describe(to)
	c.metrics.errors.Describe(to)
	c.metrics.duration.Describe(to)
}

// Collect implements prometheus.Collector.
func (c *Client) Collect(to chan<- prometheus.Metric) {
	c.metrics.total.Collect(to)
	c.metrics.errors.Collect(to)
	c.metrics.duration.Collect(to)
}

// intercept is a gRPC interceptor that measures a call.
func (m *metrics) intercept(ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	name, began := operation(method), time.Now()
	err := invoke(ctx, method, request, answer, connection, options...)
	m.total.WithLabelValues(name).Inc()
	m.duration.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil {
		m.errors.WithLabelValues(name).Inc()
	}
	return err
}

// operation returns the operation_type of a method: /runtime.v1.RuntimeService/CreateContainer is create_container.
func operation(method string) string {
	method = method[strings.LastIndexByte(method, '/')+1:]
	if method == "UpdateContainerResources" {
		return "update_container"
	}
	var b strings.Builder
	for i, r := range strings.ReplaceAll(method, "PodSandbox", "Podsandbox") {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
