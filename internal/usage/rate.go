package usage

import "time"

// Metrics are what a group of processes uses: its memory at a time, and its CPU time over the window before that.
type Metrics struct {
	At     time.Time
	Window time.Duration
	CPU    uint64 // billionths of a core
	Memory uint64 // bytes
}

// ContainerMetrics are the metrics of a container.
type ContainerMetrics struct {
	Name string
	Metrics
}

// PodKey names a pod.
type PodKey struct{ Namespace, Name string }

// NodeMetrics are the metrics of a node and of the pods that run there, at one time. They are never changed.
type NodeMetrics struct {
	Node *Metrics // nil if not known
	// Pods has the containers of each pod, in the node's order. A pod of which the metrics of a running container are not known is left out, as
	// metrics-server does: its sum would be too small.
	Pods map[PodKey][]ContainerMetrics
}

// freshest is how old a container must be for its CPU time since its start to be a rate: programs do most at their start. That is metrics-server's.
const freshest = 10 * time.Second

// metricsOf makes metrics of two readings of a node. before is nil if there is none.
func metricsOf(before, now *Reading) *NodeMetrics {
	type key struct{ namespace, pod, container string }
	old := map[key]Count{}
	m := &NodeMetrics{Pods: map[PodKey][]ContainerMetrics{}}
	if before != nil {
		for _, c := range before.Containers {
			old[key{c.Namespace, c.Pod, c.Container}] = c.Count
		}
		m.Node = rate(before.Node, now.Node)
	} else {
		m.Node = rate(Count{}, now.Node)
	}
	incomplete := map[PodKey]bool{}
	for _, c := range now.Containers {
		pod := PodKey{c.Namespace, c.Pod}
		metrics := rate(old[key{c.Namespace, c.Pod, c.Container}], c.Count)
		if metrics == nil {
			incomplete[pod] = true
			continue
		}
		m.Pods[pod] = append(m.Pods[pod], ContainerMetrics{c.Container, *metrics})
	}
	for pod := range incomplete {
		delete(m.Pods, pod)
	}
	return m
}

// rate returns metrics of two counts of the same group; nil if there is nothing to compare with. A group that was started after the first count has used
// nothing before.
func rate(before, now Count) *Metrics {
	if now.Rate != nil {
		return &Metrics{At: now.At, Window: resolution, CPU: *now.Rate, Memory: now.Memory}
	}
	if before.At.IsZero() || now.Started.After(before.At) || now.CPU < before.CPU {
		if now.Started.IsZero() || now.At.Sub(now.Started) < freshest || now.At.Sub(now.Started) > oldest {
			return nil
		}
		before = Count{At: now.Started}
	}
	window := now.At.Sub(before.At)
	if window <= 0 {
		return nil
	}
	return &Metrics{At: now.At, Window: window, CPU: uint64(float64(now.CPU-before.CPU) / window.Seconds()), Memory: now.Memory}
}
