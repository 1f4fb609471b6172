package kubelet

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// counts is a collector of gauges that are computed when they are scraped.
type counts struct{ k *Kubelet }

var (
	nodeNameDesc     = prometheus.NewDesc("kubelet_node_name", "The node's name. The count is always 1.", []string{"node"}, nil)
	desiredDesc      = prometheus.NewDesc("kubelet_desired_pods", "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	runningDesc      = prometheus.NewDesc("kubelet_running_pods", "Number of pods that have a running pod sandbox", nil, nil)
	certificatesDesc = prometheus.NewDesc("kubelet_podcertificate_states", "Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.", []string{"signer_name", "state"}, nil)
	containersDesc   = prometheus.NewDesc("kubelet_running_containers", "Number of containers currently running", []string{"container_state"}, nil)
)

// Describe implements prometheus.Collector.
func (c counts) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c counts) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	pods, running, states := c.k.Pods(), 0, map[string]int{"created": 0, "running": 0, "exited": 0}
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodPending && pod.Status.PodIP != "" {
			running++
		}
		for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
			for _, s := range list {
				switch {
				case s.State.Running != nil:
					states["running"]++
				case s.State.Terminated != nil:
					states["exited"]++
				case s.ContainerID != "":
					states["created"]++
				}
			}
		}
	}
	gauge(nodeNameDesc, 1, c.k.options.NodeName)
	gauge(desiredDesc, len(pods), "")
	gauge(runningDesc, running)
	for state, n := range states {
		gauge(containersDesc, n, state)
	}
	for of, n := range c.k.objects.certificates.Counts() {
		gauge(certificatesDesc, n, of.Signer, of.State)
	}
}
