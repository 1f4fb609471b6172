package quota

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// DeviceClasses holds the extended resources that the device classes of a cluster offer. The zero value has none.
type DeviceClasses struct {
	mu       sync.RWMutex
	extended map[string]string           // by class; empty if the class has no extendedResourceName
	offers   map[corev1.ResourceName]int // number of classes that offer the resource
}

// Changed updates the classes: before is nil for an added class, after is nil for a deleted one.
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

// ExtendedResource returns the extendedResourceName of a class, empty if it has none.
func (d *DeviceClasses) ExtendedResource(class string) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.extended[class]
}

// Offer reports whether a class offers the extended resource: as its extendedResourceName, or as deviceclass.resource.kubernetes.io/CLASS.
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
