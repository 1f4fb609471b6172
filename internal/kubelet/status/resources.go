package status

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/kubelet/cri"
)

// Below these the kernel has a single value, so what the spec asks for is reported.
const (
	minShares     = 2
	minMilliLimit = 10
)

// resources returns a container's actual resources: those of its spec, with what the runtime reports for a running container.
func (in *Input) resources(c *corev1.Container, r *cri.Container) *corev1.ResourceRequirements {
	actual := c.Resources.DeepCopy()
	if r.State != cri.Running || r.Resources == nil {
		return actual
	}
	if l := actual.Limits; l != nil {
		if milli := r.Resources.CpuQuota * 1000 / max(r.Resources.CpuPeriod, 1); r.Resources.CpuPeriod > 0 && milli > 0 && differs(l, milli, minMilliLimit) {
			l[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
		}
		if bytes := r.Resources.MemoryLimitInBytes; bytes > 0 && l.Memory().Value() != bytes {
			l[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
		}
	}
	if q := actual.Requests; q != nil && r.Resources.CpuShares > 0 && sharesOf(q.Cpu().MilliValue()) != r.Resources.CpuShares {
		if milli := (r.Resources.CpuShares*1000 + 1023) / 1024; differs(q, milli, minShares) {
			q[corev1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
		}
	}
	return actual
}

func differs(list corev1.ResourceList, milli, least int64) bool {
	requested := list.Cpu().MilliValue()
	return requested != milli && (milli > least || requested > least)
}

func sharesOf(milli int64) int64 { return max(milli*1024/1000, minShares) }
