package cgroup

import (
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// The kernel's own bounds.
const (
	minShares    = 2
	maxShares    = 262144
	minQuota     = 1000 // microseconds
	unboundPages = 1 << 62
)

// MilliCPUToShares turns a request of cpu into the weight of v1. Nothing requested is the least weight, not the kernel's default.
func MilliCPUToShares(milli int64) uint64 {
	return uint64(min(max(milli*1024/1000, minShares), maxShares))
}

// MilliCPUToQuota turns a limit of cpu into the time that may be used in each period, both in microseconds. No limit is 0.
func MilliCPUToQuota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period/1000, minQuota)
}

// SharesToWeight turns the weight of v1, 2 to 262144, into that of v2, 1 to 10000.
func SharesToWeight(shares uint64) uint64 {
	shares = min(max(shares, minShares), maxShares)
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}

// weightToShares and sharesToMilliCPU go back, as far as rounding lets them.
func weightToShares(weight uint64) uint64 {
	return (max(weight, 1)-1)*(maxShares-minShares)/9999 + minShares
}

func sharesToMilliCPU(shares uint64) int64 {
	if shares <= minShares {
		return 0
	}
	return int64((shares*1000 + 1023) / 1024)
}

// resources are what is written into a group; what is 0 is left as it is.
type resources struct {
	shares        uint64
	quota, period int64 // microseconds; a quota of -1 is none
	memory, pids  int64
	hugePages     map[int64]int64 // by size of page; sizes not in it get none
}

// podResources returns the limits of a pod. Limits of the pod as a whole hold only if every container, or the pod itself, has one: a container
// without a limit may use what the node has.
func (m *Manager) podResources(pod *corev1.Pod) resources {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	r := resources{shares: MilliCPUToShares(requests.Cpu().MilliValue()), pids: max(m.opts.PodPidsLimit, 0), hugePages: hugePages(requests)}
	period := m.opts.CPUPeriod.Microseconds()
	quota := MilliCPUToQuota(limits.Cpu().MilliValue(), period)
	if m.opts.NoCPUQuota {
		quota = -1
	}
	switch class(pod) {
	case corev1.PodQOSBestEffort:
		r.shares = minShares
	case corev1.PodQOSGuaranteed:
		r.quota, r.period, r.memory = quota, period, limits.Memory().Value()
	default:
		if bounded(pod, corev1.ResourceCPU) {
			r.quota, r.period = quota, period
		}
		if bounded(pod, corev1.ResourceMemory) {
			r.memory = limits.Memory().Value()
		}
	}
	return r
}

// bounded reports whether a pod has a limit of a resource for each of its containers, or one for all of it.
func bounded(pod *corev1.Pod, name corev1.ResourceName) bool {
	if pod.Spec.Resources != nil {
		if limit := pod.Spec.Resources.Limits[name]; !limit.IsZero() {
			return true
		}
	}
	for _, list := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if limit := list[i].Resources.Limits[name]; limit.IsZero() {
				return false
			}
		}
	}
	return true
}

// classResources returns those of a group for many pods, which never bounds huge pages.
func (m *Manager) classResources(shares uint64) resources {
	r := resources{shares: shares, hugePages: map[int64]int64{}}
	for _, size := range m.pageSizes {
		r.hugePages[size] = unboundPages
	}
	return r
}

// hugePages returns requests of huge pages, in bytes, by size of page.
func hugePages(list corev1.ResourceList) map[int64]int64 {
	m := map[int64]int64{}
	for name, quantity := range list {
		size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		if size, err := resource.ParseQuantity(size); err == nil {
			m[size.Value()] += quantity.Value()
		}
	}
	return m
}

// pageSizes returns the sizes of huge pages that the machine has, none if it has no such directory.
func pageSizes(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	var sizes []int64
	for _, e := range entries {
		kilo, ok := strings.CutPrefix(e.Name(), "hugepages-")
		if n, err := strconv.ParseInt(strings.TrimSuffix(kilo, "kB"), 10, 64); ok && err == nil {
			sizes = append(sizes, n<<10)
		}
	}
	return sizes, err
}

// pageName returns a size of page as the files of the controller are named: 64KB, 2MB, 1GB.
func pageName(size int64) string {
	unit := 0
	for ; size >= 1<<10 && size%(1<<10) == 0 && unit < 3; unit++ {
		size >>= 10
	}
	return strconv.FormatInt(size, 10) + []string{"B", "KB", "MB", "GB"}[unit]
}
