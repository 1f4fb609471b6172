package quota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

func one() resource.Quantity { return number(1) }

// Add returns the sum of two lists.
func Add(a, b corev1.ResourceList) corev1.ResourceList {
	sum := make(corev1.ResourceList, max(len(a), len(b)))
	for name, value := range a {
		sum[name] = value.DeepCopy()
	}
	for name, value := range b {
		total, ok := sum[name]
		if !ok {
			sum[name] = value.DeepCopy()
			continue
		}
		total.Add(value)
		sum[name] = total
	}
	return sum
}

// Growth returns the increases from old to new, without amounts that did not increase.
func Growth(new, old corev1.ResourceList) corev1.ResourceList {
	more := corev1.ResourceList{}
	for name, value := range new {
		value = value.DeepCopy()
		if before, ok := old[name]; ok {
			value.Sub(before)
		}
		if value.Sign() > 0 {
			more[name] = value
		}
	}
	return more
}

// Equal reports whether two lists have the same amounts.
func Equal(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, value := range a {
		if other, ok := b[name]; !ok || value.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
