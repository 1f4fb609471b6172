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

// Reason is the status reason of evicted pods, and the reason of their Events.
const Reason = "Evicted"

// Usage is how much a pod uses of the resource that the node is short of.
type Usage struct {
	Pod        *corev1.Pod
	Used       int64
	Containers map[string]int64 // the usage of its containers, by name
}

// criticalPriority is the priority of system-cluster-critical.
const criticalPriority = 2_000_000_000

// Critical reports whether a pod is critical, and so is never evicted.
func Critical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
}

// Rank returns pods in the order in which they are evicted: those that exceed their requests first, then by priority, then by how much they exceed them.
// Critical pods are left out.
func Rank(of corev1.ResourceName, list []Usage) []Usage {
	list = slices.DeleteFunc(slices.Clone(list), func(u Usage) bool { return Critical(u.Pod) })
	slices.SortStableFunc(list, func(a, b Usage) int {
		return cmp.Or(exceeds(of, b)-exceeds(of, a), cmp.Compare(priority(a.Pod), priority(b.Pod)), cmp.Compare(b.Used-request(of, b.Pod), a.Used-request(of, a.Pod)))
	})
	return list
}

func exceeds(of corev1.ResourceName, u Usage) int {
	if of == PIDs || of == Inodes { // pods cannot request those
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

// Message returns the message of an evicted pod's status and Event.
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

// Disk is the disk usage of a pod in bytes.
type Disk struct {
	Containers map[string]int64 // writable layers and logs, by container
	Volumes    map[string]int64 // emptyDirs that are on the disk or in memory, by volume
}

// Exceeded returns which disk limit a pod exceeds, as the message of its eviction; "" if none.
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

// Limited reports whether a pod has a disk limit: of an emptyDir volume, or of ephemeral-storage.
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
