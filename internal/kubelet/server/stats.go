package server

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// summary answers with what the node and its pods use.
func (s *Server) summary(w http.ResponseWriter, rq *http.Request) {
	stats, err := s.opts.Stats.Summary(rq.Context(), rq.FormValue("only_cpu_and_memory") == "true")
	if err != nil {
		fail(w, http.StatusInternalServerError, "Internal Error: "+err.Error())
		return
	}
	writeJSON(w, stats)
}

// resourceMetrics answers with the CPU time and memory that the node and its pods use, as the metrics server asks for them.
func (s *Server) resourceMetrics(w http.ResponseWriter, rq *http.Request) {
	stats, err := s.opts.Stats.Summary(rq.Context(), true)
	serveMetrics(w, rq, collector(func(c chan<- prometheus.Metric) { collectResources(c, stats, err) }))
}

// containerMetrics answers with what containers use, by the names that cAdvisor gave it.
func (s *Server) containerMetrics(w http.ResponseWriter, rq *http.Request) {
	stats, err := s.opts.Stats.Summary(rq.Context(), false)
	serveMetrics(w, rq, collector(func(c chan<- prometheus.Metric) { s.collectContainers(c, stats, err) }))
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	nodeCPU        = desc("node_cpu_usage_seconds_total", "[STABLE] Cumulative cpu time consumed by the node in core-seconds")
	nodeMemory     = desc("node_memory_working_set_bytes", "[STABLE] Current working set of the node in bytes")
	nodeSwap       = desc("node_swap_usage_bytes", "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems")
	containerCPU   = desc("container_cpu_usage_seconds_total", "[STABLE] Cumulative cpu time consumed by the container in core-seconds", "container", "pod", "namespace")
	containerMem   = desc("container_memory_working_set_bytes", "[STABLE] Current working set of the container in bytes", "container", "pod", "namespace")
	containerSwap  = desc("container_swap_usage_bytes", "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems", "container", "pod", "namespace")
	containerLimit = desc("container_swap_limit_bytes", "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems", "container", "pod", "namespace")
	containerStart = desc("container_start_time_seconds", "[STABLE] Start time of the container since unix epoch in seconds", "container", "pod", "namespace")
	podCPU         = desc("pod_cpu_usage_seconds_total", "[STABLE] Cumulative cpu time consumed by the pod in core-seconds", "pod", "namespace")
	podMemory      = desc("pod_memory_working_set_bytes", "[STABLE] Current working set of the pod in bytes", "pod", "namespace")
	podSwap        = desc("pod_swap_usage_bytes", "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems", "pod", "namespace")
	resourceFailed = desc("resource_scrape_error", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise")
	scrapeFailed   = desc("scrape_error", "[ALPHA] (Deprecated since 1.29.0) 1 if there was an error while getting container metrics, 0 otherwise")
)

// sample makes metrics of what is there.
type sample struct {
	to     chan<- prometheus.Metric
	labels []string
}

// at is a value of a time, if there is one.
func (s sample) at(t metav1.Time, d *prometheus.Desc, kind prometheus.ValueType, value *uint64, scale float64) {
	if value == nil {
		return
	}
	m := prometheus.MustNewConstMetric(d, kind, float64(*value)/scale, s.labels...)
	if !t.IsZero() {
		m = prometheus.NewMetricWithTimestamp(t.Time, m)
	}
	s.to <- m
}

func (s sample) usage(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, swap *statsapi.SwapStats, cpuDesc, memoryDesc, swapDesc *prometheus.Desc) {
	if cpu != nil {
		s.at(cpu.Time, cpuDesc, prometheus.CounterValue, cpu.UsageCoreNanoSeconds, float64(time.Second))
	}
	if memory != nil {
		s.at(memory.Time, memoryDesc, prometheus.GaugeValue, memory.WorkingSetBytes, 1)
	}
	if swap != nil {
		s.at(swap.Time, swapDesc, prometheus.GaugeValue, swap.SwapUsageBytes, 1)
	}
}

func collectResources(c chan<- prometheus.Metric, stats *statsapi.Summary, err error) {
	failed := 0.0
	if err != nil {
		failed = 1
	}
	for _, d := range []*prometheus.Desc{resourceFailed, scrapeFailed} {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, failed)
	}
	if err != nil {
		return
	}
	sample{c, nil}.usage(stats.Node.CPU, stats.Node.Memory, stats.Node.Swap, nodeCPU, nodeMemory, nodeSwap)
	for _, p := range stats.Pods {
		sample{c, []string{p.PodRef.Name, p.PodRef.Namespace}}.usage(p.CPU, p.Memory, p.Swap, podCPU, podMemory, podSwap)
		for _, ct := range p.Containers {
			s := sample{c, []string{ct.Name, p.PodRef.Name, p.PodRef.Namespace}}
			s.usage(ct.CPU, ct.Memory, ct.Swap, containerCPU, containerMem, containerSwap)
			if ct.Swap != nil && ct.Swap.SwapAvailableBytes != nil {
				limit := *ct.Swap.SwapAvailableBytes
				if ct.Swap.SwapUsageBytes != nil {
					limit += *ct.Swap.SwapUsageBytes
				}
				s.at(ct.Swap.Time, containerLimit, prometheus.GaugeValue, &limit, 1)
			}
			if started := ct.StartTime.Time; started.Unix() > 0 {
				c <- prometheus.MustNewConstMetric(containerStart, prometheus.GaugeValue, float64(started.UnixNano())/float64(time.Second), s.labels...)
			}
		}
	}
}

var (
	ofContainer = []string{"container", "pod", "namespace", "image", "id", "name"}
	ofNetwork   = append(ofContainer[:len(ofContainer):len(ofContainer)], "interface")

	cCPU        = desc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", append(ofContainer[:len(ofContainer):len(ofContainer)], "cpu")...)
	cUsage      = desc("container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed", ofContainer...)
	cWorkingSet = desc("container_memory_working_set_bytes", "Current working set in bytes.", ofContainer...)
	cRSS        = desc("container_memory_rss", "Size of RSS in bytes.", ofContainer...)
	cFS         = desc("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", ofContainer...)
	cStart      = desc("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", ofContainer...)
	cReceived   = desc("container_network_receive_bytes_total", "Cumulative count of bytes received", ofNetwork...)
	cSent       = desc("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", ofNetwork...)
	cReceiveErr = desc("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", ofNetwork...)
	cSendErr    = desc("container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting", ofNetwork...)
	cFailed     = desc("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise")
)

// collectContainers makes of a summary what there is in it of cAdvisor's metrics: of each container, of each pod under an empty container name, and
// of the node under the id "/".
func (s *Server) collectContainers(c chan<- prometheus.Metric, stats *statsapi.Summary, err error) {
	failed := 0.0
	if err != nil {
		failed = 1
	}
	c <- prometheus.MustNewConstMetric(cFailed, prometheus.GaugeValue, failed)
	if err != nil {
		return
	}
	collectContainer(c, []string{"", "", "", "", "/", ""}, stats.Node.CPU, stats.Node.Memory, stats.Node.Fs, stats.Node.Network, stats.Node.StartTime)
	for _, p := range stats.Pods {
		pod := s.opts.Pods.Pod(p.PodRef.Namespace, p.PodRef.Name)
		collectContainer(c, []string{"", p.PodRef.Name, p.PodRef.Namespace, "", "", ""}, p.CPU, p.Memory, nil, p.Network, p.StartTime)
		for _, ct := range p.Containers {
			image, id := "", ""
			if pod != nil {
				if status, ok := statusOf(pod, ct.Name); ok {
					image, id = status.Image, status.ContainerID
				}
			}
			collectContainer(c, []string{ct.Name, p.PodRef.Name, p.PodRef.Namespace, image, id, id}, ct.CPU, ct.Memory, ct.Rootfs, nil, ct.StartTime)
		}
	}
}

func collectContainer(c chan<- prometheus.Metric, labels []string, cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, fs *statsapi.FsStats,
	network *statsapi.NetworkStats, started metav1.Time) {
	s := sample{c, labels}
	if cpu != nil {
		sample{c, append(labels[:len(labels):len(labels)], "total")}.at(cpu.Time, cCPU, prometheus.CounterValue, cpu.UsageCoreNanoSeconds, float64(time.Second))
	}
	if memory != nil {
		s.at(memory.Time, cUsage, prometheus.GaugeValue, memory.UsageBytes, 1)
		s.at(memory.Time, cWorkingSet, prometheus.GaugeValue, memory.WorkingSetBytes, 1)
		s.at(memory.Time, cRSS, prometheus.GaugeValue, memory.RSSBytes, 1)
	}
	if fs != nil {
		s.at(fs.Time, cFS, prometheus.GaugeValue, fs.UsedBytes, 1)
	}
	if started.Unix() > 0 {
		c <- prometheus.MustNewConstMetric(cStart, prometheus.GaugeValue, float64(started.Unix()), labels...)
	}
	if network == nil {
		return
	}
	interfaces := network.Interfaces
	if len(interfaces) == 0 && network.Name != "" {
		interfaces = []statsapi.InterfaceStats{network.InterfaceStats}
	}
	for _, i := range interfaces {
		n := sample{c, append(labels[:len(labels):len(labels)], i.Name)}
		n.at(network.Time, cReceived, prometheus.CounterValue, i.RxBytes, 1)
		n.at(network.Time, cSent, prometheus.CounterValue, i.TxBytes, 1)
		n.at(network.Time, cReceiveErr, prometheus.CounterValue, i.RxErrors, 1)
		n.at(network.Time, cSendErr, prometheus.CounterValue, i.TxErrors, 1)
	}
}
