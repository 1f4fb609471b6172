package kubelet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podrules "skiff/internal/catalog/pod"
	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/status"
)

// oom_score_adj of processes: the higher, the sooner the kernel kills them when memory runs out.
const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000
)

const cpuPeriod = 100_000 // the CFS period in µs

// nodeCritical is the priority of system-node-critical.
const nodeCritical = 2_000_001_000

// linuxResources returns a container's CPU shares and limits. A container without a limit gets its pod's.
func (k *Kubelet) linuxResources(pod *corev1.Pod, c *corev1.Container) *runtimeapi.LinuxContainerResources {
	cpuLimit, memoryLimit := c.Resources.Limits.Cpu(), c.Resources.Limits.Memory()
	if r := pod.Spec.Resources; r != nil {
		if cpuLimit.IsZero() {
			cpuLimit = r.Limits.Cpu()
		}
		if memoryLimit.IsZero() {
			memoryLimit = r.Limits.Memory()
		}
	}
	request := cpuLimit
	if r, ok := c.Resources.Requests[corev1.ResourceCPU]; ok {
		request = &r
	}
	out := linuxAmounts(request, cpuLimit, memoryLimit)
	out.OomScoreAdj = oomScore(pod, c, k.machine.Memory)
	return out
}

// linuxAmounts converts quantities to what the runtime takes.
func linuxAmounts(cpuRequest, cpuLimit, memoryLimit *resource.Quantity) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{CpuShares: int64(cgroup.MilliCPUToShares(cpuRequest.MilliValue())), CpuPeriod: cpuPeriod,
		CpuQuota: cgroup.MilliCPUToQuota(cpuLimit.MilliValue(), cpuPeriod), MemoryLimitInBytes: memoryLimit.Value()}
}

// sandboxResources returns the resources of all containers of a pod, and the overhead of its sandbox, for runtimes that run each pod in a virtual machine.
func sandboxResources(pod *corev1.Pod) (all, overhead *runtimeapi.LinuxContainerResources) {
	o := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	limits := resourcehelper.PodLimits(pod, o)
	request := limits.Cpu()
	if r, ok := resourcehelper.PodRequests(pod, o)[corev1.ResourceCPU]; ok {
		request = &r
	}
	overhead = &runtimeapi.LinuxContainerResources{}
	if pod.Spec.Overhead != nil {
		cpu := pod.Spec.Overhead.Cpu()
		overhead = linuxAmounts(cpu, cpu, pod.Spec.Overhead.Memory())
	}
	return linuxAmounts(request, limits.Cpu(), limits.Memory()), overhead
}

// oomScore returns the oom_score_adj of a container: the larger the part of the node's memory that it requests, the lower.
func oomScore(pod *corev1.Pod, c *corev1.Container, capacity int64) int64 {
	class := podrules.QOSClass(pod)
	switch {
	case pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCritical, class == corev1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case class == corev1.PodQOSBestEffort || capacity <= 0:
		return bestEffortOOMScore
	}
	spare := spareRequest(pod)
	score := 1000 - 1000*(c.Resources.Requests.Memory().Value()+spare)/capacity
	if container(pod.Spec.InitContainers, c.Name) != nil && status.IsSidecar(c) { // a sidecar is not killed before the containers it serves
		least := slices.MinFunc(pod.Spec.Containers, func(a, b corev1.Container) int {
			return a.Resources.Requests.Memory().Cmp(*b.Resources.Requests.Memory())
		})
		score = min(score, 1000-1000*(least.Resources.Requests.Memory().Value()+spare)/capacity)
	}
	return min(max(score, 1000+guaranteedOOMScore), bestEffortOOMScore-1)
}

// spareRequest returns each container's share of the pod-level memory request that exceeds the requests of its containers.
func spareRequest(pod *corev1.Pod) int64 {
	if pod.Spec.Resources == nil {
		return 0
	}
	all, ok := pod.Spec.Resources.Requests[corev1.ResourceMemory]
	if !ok {
		return 0
	}
	left, n := all.Value(), int64(0)
	take := func(c *corev1.Container) {
		left -= c.Resources.Requests.Memory().Value()
		n++
	}
	for i := range pod.Spec.Containers {
		take(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; status.IsSidecar(c) {
			take(c)
		}
	}
	return max(left, 0) / max(n, 1)
}
