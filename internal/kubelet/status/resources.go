package status

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/kubelet/cri"
)

// Below these the kernel has but one value, so what was asked for is as good an answer.
const (
	minShares     = 2
	minMilliLimit = 10
)

// resources are what a container has: what it asks for, as far as the runtime does not know better.
func (in *Input) resources(c *corev1.Container, r *cri.Container) *corev1.ResourceRequirements {
	has := c.Resources.DeepCopy()
	if r.State != cri.Running || r.Resources == nil {
		return has
	}
	if l := has.Limits; l != nil {
		if milli := r.Resources.CpuQuota * 1000 / max(r.Resources.CpuPeriod, 1); r.Resources.CpuPeriod > 0 && milli > 0 && differs(l, milli, minMilliLimit) {
			l[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
		}
		if bytes := r.Resources.MemoryLimitInBytes; bytes > 0 && l.Memory().Value() != bytes {
			l[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
		}
	}
	if q := has.Requests; q != nil && r.Resources.CpuShares > 0 && sharesOf(q.Cpu().MilliValue()) != r.Resources.CpuShares {
		if milli := (r.Resources.CpuShares*1000 + 1023) / 1024; differs(q, milli, minShares) {
			q[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
		}
	}
	return has
}

func differs(list corev1.ResourceList, milli, least int64) bool {
	asked := list.Cpu().MilliValue()
	return asked != milli && (milli > least || asked > least)
}

func sharesOf(milli int64) int64 { return max(milli*1024/1000, minShares) }
