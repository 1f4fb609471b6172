package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Reason is that of pods that had to go.
const Reason = "Evicted"

// Usage is how much of the resource that is short a pod uses.
type Usage struct {
	Pod        *corev1.Pod
	Used       int64
	Containers map[string]int64 // that of its containers, by name
}

// criticalPriority is that of pods without which there is no cluster.
const criticalPriority = 2_000_000_000

// Critical says whether a pod stays whatever happens.
func Critical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
}

// Rank sorts pods by who has to go first: those that use more than they asked for, then by priority, then by how much more they use. Critical
// ones are left out.
func Rank(of corev1.ResourceName, list []Usage) []Usage {
	list = slices.DeleteFunc(slices.Clone(list), func(u Usage) bool { return Critical(u.Pod) })
	slices.SortStableFunc(list, func(a, b Usage) int {
		return cmp.Or(exceeds(of, b)-exceeds(of, a), cmp.Compare(priority(a.Pod), priority(b.Pod)), cmp.Compare(b.Used-request(of, b.Pod), a.Used-request(of, a.Pod)))
	})
	return list
}

func exceeds(of corev1.ResourceName, u Usage) int {
	if of == PIDs || of == Inodes { // nobody can ask for those
		return 0
	}
	if u.Used > request(of, u.Pod) {
		return 1
	}
	return 0
}

func request(of corev1.ResourceName, pod *corev1.Pod) int64 {
	if of != corev1.ResourceMemory && of != corev1.ResourceEphemeralStorage {
		return 0
	}
	q := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[of]
	return q.Value()
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// Message is why a pod had to go.
func Message(s Shortage, u Usage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %v. Threshold quantity: %v, available: %v. ", s.Resource, s.Threshold, s.Available)
	for _, list := range [][]corev1.Container{u.Pod.Spec.Containers, u.Pod.Spec.InitContainers} {
		for i := range list {
			used, asked := resource.NewQuantity(u.Containers[list[i].Name], resource.BinarySI), list[i].Resources.Requests[s.Resource]
			if used.Sign() > 0 && used.Cmp(asked) > 0 {
				fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %v. ", list[i].Name, used, asked.String(), s.Resource)
			}
		}
	}
	return b.String()
}

// Disk is what a pod has on the disk, in bytes.
type Disk struct {
	Containers map[string]int64 // writable layers and logs, by container
	Volumes    map[string]int64 // emptyDirs that are on the disk or in memory, by volume
}

// Exceeded says which limit of its own a pod exceeds, empty if none.
func Exceeded(pod *corev1.Pod, d Disk) string {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if e := v.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 && d.Volumes[v.Name] > e.SizeLimit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, e.SizeLimit.String())
		}
	}
	var total int64
	for _, used := range d.Containers {
		total += used
	}
	for _, used := range d.Volumes {
		total += used
	}
	if limit, ok := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]; ok && limit.Sign() > 0 && total > limit.Value() {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if limit, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]; ok && limit.Sign() > 0 && d.Containers[c.Name] > limit.Value() {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
		}
	}
	return ""
}

// Limited says whether a pod has limits of what it may have on the disk.
func Limited(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if e := pod.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		if _, ok := pod.Spec.Containers[i].Resources.Limits[corev1.ResourceEphemeralStorage]; ok {
			return true
		}
	}
	return false
}
