package eviction

import (
	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "k8s.io/api/core/v1"
)

// What a node can run out of, beside what corev1 has names for.
const (
	Inodes corev1.ResourceName = "inodes"
	PIDs   corev1.ResourceName = "pids"
)

// Amount is how much there is of something, and how much of it is left.
type Amount struct{ Available, Capacity int64 }

// Signals are how a node is. An Amount without capacity was not measured.
type Signals struct {
	Memory                  Amount // in bytes
	NodeDisk, ImageDisk     Amount // of the file systems of pods and of images, in bytes
	NodeInodes, ImageInodes Amount
	PIDs                    Amount
}

// Thresholds say how little is too little. Zero is never.
type Thresholds struct {
	Memory                                  int64 // bytes
	DiskPercent, InodesPercent, PIDsPercent int64 // of what there is
	DiskMost                                int64 // bytes of a disk that are enough, however large it is; 0: none are
}

// Default keeps a little of everything. Of a disk it is less than upstream's 10 %: that is a lot of today's disks, and much of a disk that pods do
// not fill does not mean that pods are in danger.
var Default = Thresholds{Memory: 100 << 20, DiskPercent: 5, DiskMost: 2 << 30, InodesPercent: 5, PIDsPercent: 1}

// Shortage is something that there is too little of.
type Shortage struct {
	Resource             corev1.ResourceName
	Condition            corev1.NodeConditionType
	Threshold, Available *resource.Quantity
}

// Met are the shortages of a node, the one that kills soonest first.
func (t Thresholds) Met(s Signals) (out []Shortage) {
	check := func(a Amount, least int64, name corev1.ResourceName, condition corev1.NodeConditionType, format resource.Format) {
		if a.Capacity > 0 && least > 0 && a.Available < least {
			out = append(out, Shortage{name, condition, resource.NewQuantity(least, format), resource.NewQuantity(a.Available, format)})
		}
	}
	check(s.Memory, t.Memory, corev1.ResourceMemory, corev1.NodeMemoryPressure, resource.BinarySI)
	check(s.NodeDisk, t.leastDisk(s.NodeDisk), corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure, resource.BinarySI)
	check(s.ImageDisk, t.leastDisk(s.ImageDisk), corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure, resource.BinarySI)
	check(s.NodeInodes, s.NodeInodes.Capacity/100*t.InodesPercent, Inodes, corev1.NodeDiskPressure, resource.DecimalSI)
	check(s.ImageInodes, s.ImageInodes.Capacity/100*t.InodesPercent, Inodes, corev1.NodeDiskPressure, resource.DecimalSI)
	check(s.PIDs, s.PIDs.Capacity*t.PIDsPercent/100, PIDs, corev1.NodePIDPressure, resource.DecimalSI)
	return out
}

func (t Thresholds) leastDisk(a Amount) int64 {
	least := a.Capacity / 100 * t.DiskPercent
	if t.DiskMost > 0 {
		least = min(least, t.DiskMost)
	}
	return least
}
