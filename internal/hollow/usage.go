package hollow

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/usage"
)

// usageTTL is how long the pods of all nodes are kept sorted by node. Nothing is kept sorted while nobody asks.
const usageTTL = time.Second

// usages has the pods of all nodes, as of a moment ago.
type usages struct {
	mu     sync.Mutex
	sorted time.Time
	pods   map[string][]*corev1.Pod // by node
}

// of returns the pods of a node.
func (u *usages) of(node string, all func() []any) []*corev1.Pod {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.sorted) >= usageTTL {
		u.pods = map[string][]*corev1.Pod{}
		for _, obj := range all() {
			pod := obj.(*corev1.Pod)
			u.pods[pod.Spec.NodeName] = append(u.pods[pod.Spec.NodeName], pod)
		}
		u.sorted = time.Now()
		time.AfterFunc(usageTTL, func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			if time.Since(u.sorted) >= usageTTL {
				u.pods, u.sorted = nil, time.Time{}
			}
		})
	}
	return u.pods[node]
}

// Usage returns what a node and the running containers of its pods use now: what their annotations say, or their requests. It returns nil if there is no such
// node, or if it is stopped.
func (n *Nodes) Usage(name string) *usage.Reading {
	k := n.kubelets[name]
	if k == nil || k.isStopped() || !n.started.Load() {
		return nil
	}
	now, cpu, memory := time.Now(), uint64(0), uint64(0)
	r := &usage.Reading{}
	for _, pod := range n.usages.of(name, n.pods.GetStore().List) {
		for _, c := range podUsage(pod, now) {
			cpu += *c.Rate
			memory += c.Memory
			r.Containers = append(r.Containers, c)
		}
	}
	r.Node = usage.Count{At: now, Rate: &cpu, Memory: memory}
	return r
}

// podUsage returns what the running containers of a pod use.
func podUsage(pod *corev1.Pod, now time.Time) (counts []usage.ContainerCount) {
	if terminal(pod) {
		return nil
	}
	requests := map[string]corev1.ResourceList{}
	for _, c := range pod.Spec.InitContainers {
		requests[c.Name] = c.Resources.Requests
	}
	for _, c := range pod.Spec.Containers {
		requests[c.Name] = c.Resources.Requests
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if s.State.Running == nil {
				continue
			}
			cpu := amount(pod, annotationCPU, requests[s.Name][corev1.ResourceCPU])
			memory := amount(pod, annotationMemory, requests[s.Name][corev1.ResourceMemory])
			rate := uint64(max(cpu.ScaledValue(resource.Nano), 0))
			counts = append(counts, usage.ContainerCount{Namespace: pod.Namespace, Pod: pod.Name, Container: s.Name,
				Count: usage.Count{At: now, Rate: &rate, Memory: uint64(max(memory.Value(), 0))}})
		}
	}
	return counts
}

// amount returns what an annotation of a pod says, or fallback if it says nothing valid.
func amount(pod *corev1.Pod, annotation string, fallback resource.Quantity) resource.Quantity {
	if text := pod.Annotations[annotation]; text != "" {
		if q, err := resource.ParseQuantity(text); err == nil {
			return q
		}
	}
	return fallback
}
