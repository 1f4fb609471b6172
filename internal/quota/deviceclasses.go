package quota

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// DeviceClasses knows which extended resources the device classes of a cluster offer. The zero value knows of none.
type DeviceClasses struct {
	mu       sync.RWMutex
	extended map[string]string           // by class, empty if it offers none under a name of its own
	offers   map[corev1.ResourceName]int // how many classes offer a resource
}

// Changed tells of a class that came (before is nil), changed, or went (after is nil).
func (d *DeviceClasses) Changed(before, after *resourcev1.DeviceClass) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.extended == nil {
		d.extended, d.offers = map[string]string{}, map[corev1.ResourceName]int{}
	}
	if before != nil {
		if name := d.extended[before.Name]; name != "" {
			if d.offers[corev1.ResourceName(name)]--; d.offers[corev1.ResourceName(name)] == 0 {
				delete(d.offers, corev1.ResourceName(name))
			}
		}
		delete(d.extended, before.Name)
	}
	if after != nil {
		name := ""
		if after.Spec.ExtendedResourceName != nil {
			name = *after.Spec.ExtendedResourceName
			d.offers[corev1.ResourceName(name)]++
		}
		d.extended[after.Name] = name
	}
}

// ExtendedResource returns the extended resource that a class offers under a name of its own, or nothing.
func (d *DeviceClasses) ExtendedResource(class string) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.extended[class]
}

// Offer reports whether some class offers the extended resource: under a name of its own, or as deviceclass.resource.kubernetes.io/CLASS.
func (d *DeviceClasses) Offer(resource corev1.ResourceName) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if class, implicit := strings.CutPrefix(string(resource), resourcev1.ResourceDeviceClassPrefix); implicit {
		if _, ok := d.extended[class]; ok {
			return true
		}
	}
	return d.offers[resource] > 0
}
