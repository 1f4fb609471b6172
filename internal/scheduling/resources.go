package scheduling

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Resources holds amounts of compute resources: requests of a pod, allocatable of a node, or what its pods request.
type Resources struct {
	MilliCPU         int64
	Memory           int64
	EphemeralStorage int64
	AllowedPods      int64    // how many pods a node takes
	Scalars          []Scalar // extended resources, huge pages and the like; sorted by name, shared, never changed
}

// Scalar is an amount of a resource that is counted in whole units.
type Scalar struct {
	Name   corev1.ResourceName
	Amount int64
}

// NewResources returns the amounts in a list that the scheduler counts.
func NewResources(list corev1.ResourceList) Resources {
	var r Resources
	for name, quantity := range list {
		switch name {
		case corev1.ResourceCPU:
			r.MilliCPU = quantity.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = quantity.Value()
		case corev1.ResourcePods:
			r.AllowedPods = quantity.Value()
		case corev1.ResourceEphemeralStorage:
			r.EphemeralStorage = quantity.Value()
		default:
			if IsScalar(name) {
				r.Scalars = append(r.Scalars, Scalar{name, quantity.Value()})
			}
		}
	}
	slices.SortFunc(r.Scalars, func(a, b Scalar) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return r
}

// Scalar returns the amount of the named resource, 0 if there is none.
func (r *Resources) Scalar(name corev1.ResourceName) int64 {
	for i := range r.Scalars {
		if r.Scalars[i].Name == name {
			return r.Scalars[i].Amount
		}
	}
	return 0
}

// Of returns the amount of any resource by name: CPU in thousandths, the rest in units.
func (r *Resources) Of(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return r.MilliCPU
	case corev1.ResourceMemory:
		return r.Memory
	case corev1.ResourceEphemeralStorage:
		return r.EphemeralStorage
	}
	return r.Scalar(name)
}

// Within reports whether no amount is above the other's.
func (r *Resources) Within(other *Resources) bool {
	if r.MilliCPU > other.MilliCPU || r.Memory > other.Memory || r.EphemeralStorage > other.EphemeralStorage {
		return false
	}
	for _, s := range r.Scalars {
		if s.Amount > other.Scalar(s.Name) {
			return false
		}
	}
	return true
}

// plus returns the sum with sign times the amounts of other, without the number of pods.
func (r Resources) plus(other *Resources, sign int64) Resources {
	r.MilliCPU += sign * other.MilliCPU
	r.Memory += sign * other.Memory
	r.EphemeralStorage += sign * other.EphemeralStorage
	if len(other.Scalars) == 0 {
		return r
	}
	sum := make([]Scalar, 0, len(r.Scalars)+len(other.Scalars))
	a, b := r.Scalars, other.Scalars
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Name < b[0].Name:
			sum, a = append(sum, a[0]), a[1:]
		case len(a) == 0 || b[0].Name < a[0].Name:
			sum, b = append(sum, Scalar{b[0].Name, sign * b[0].Amount}), b[1:]
		default:
			sum, a, b = append(sum, Scalar{a[0].Name, a[0].Amount + sign*b[0].Amount}), a[1:], b[1:]
		}
	}
	r.Scalars = sum
	return r
}

// IsScalar reports whether the scheduler counts the resource in whole units: extended resources, huge pages, attachable volumes and resources of
// Kubernetes' own domain.
func IsScalar(name corev1.ResourceName) bool {
	return IsExtended(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix) || strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix)
}

// IsExtended reports whether the resource is one that Kubernetes itself does not know, such as example.com/gpu.
func IsExtended(name corev1.ResourceName) bool {
	s := string(name)
	if !strings.Contains(s, "/") || strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) || strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	// The name must be valid in a quota.
	return len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+s)) == 0
}
