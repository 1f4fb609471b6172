package housekeeping

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/nodestatus"
)

// pressureTransition is for how long a pressure condition stays true after the node has enough again.
const pressureTransition = 5 * time.Minute

// RunEviction evicts pods before the node runs out of memory, disk or process IDs, and pods that exceed their own disk limits, until ctx ends. All pods of
// the API must have their workers.
func (m *Manager) RunEviction(ctx context.Context) {
	lastShort := map[corev1.NodeConditionType]time.Time{}
	for ctx.Err() == nil {
		m.enforceDiskLimits(ctx)
		shortages := m.shortages(ctx)
		for _, s := range shortages {
			lastShort[s.Condition] = time.Now()
		}
		m.setPressure(lastShort)
		m.keepBallast(shortages)
		if len(shortages) > 0 {
			m.relieve(ctx, shortages[0])
		}
		sleep(ctx, m.options.EvictionInterval)
	}
}

// shortages returns the eviction thresholds that are met.
func (m *Manager) shortages(ctx context.Context) []eviction.Shortage {
	signals, err := m.options.Measure(ctx)
	if err != nil {
		m.log.Warn("failed to measure how much the node has left", "error", err)
		return nil
	}
	return m.options.Thresholds.Met(signals)
}

// setPressure sets the node's pressure conditions by when the node was last short of each resource.
func (m *Manager) setPressure(lastShort map[corev1.NodeConditionType]time.Time) {
	is := func(c corev1.NodeConditionType) bool {
		return !lastShort[c].IsZero() && time.Since(lastShort[c]) < pressureTransition
	}
	m.options.Node.SetPressure(nodestatus.Pressure{Memory: is(corev1.NodeMemoryPressure), Disk: is(corev1.NodeDiskPressure), PIDs: is(corev1.NodePIDPressure)})
}

// relieve does something about a shortage: what nobody needs is removed first, then one pod is evicted.
func (m *Manager) relieve(ctx context.Context, s eviction.Shortage) {
	record := func() {
		m.options.Recorder.Eventf(m.options.Node.Ref(), corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", s.Resource)
	}
	if isDiskFull(s) {
		defer record() // on a full disk the Event could not be stored before
	} else {
		record()
	}
	if s.Condition == corev1.NodeDiskPressure {
		m.removeExitedContainers(ctx)
		m.removeUnusedImages(ctx)
		remaining := m.shortages(ctx)
		if !slices.ContainsFunc(remaining, func(o eviction.Shortage) bool { return o.Condition == s.Condition }) {
			return
		}
	}
	ranked := eviction.Rank(s.Resource, m.usages(ctx, s.Resource))
	if len(ranked) == 0 {
		m.log.Warn("the node is short of a resource, and there is no pod to evict", "resource", s.Resource)
		return
	}
	first := ranked[0]
	m.options.Pods.Evict(ctx, first.Pod.UID, eviction.Message(s, first), isDiskFull(s))
}

// usages returns how much of a resource each running pod uses.
func (m *Manager) usages(ctx context.Context, resource corev1.ResourceName) (usages []eviction.Usage) {
	list, err := m.options.Runtime.ListPodSandboxStats(ctx, nil)
	if err != nil {
		return nil
	}
	for _, s := range list {
		pod := m.options.Pods.Running(types.UID(s.GetAttributes().GetLabels()[cri.LabelPodUID]))
		if pod == nil {
			continue
		}
		u := eviction.Usage{Pod: pod, Containers: map[string]int64{}}
		switch resource {
		case corev1.ResourceMemory:
			u.Used = int64(s.GetLinux().GetMemory().GetWorkingSetBytes().GetValue())
			for _, c := range s.GetLinux().GetContainers() {
				u.Containers[c.GetAttributes().GetMetadata().GetName()] = int64(c.GetMemory().GetWorkingSetBytes().GetValue())
			}
		case eviction.PIDs:
			u.Used = int64(s.GetLinux().GetProcess().GetProcessCount().GetValue())
		case eviction.Inodes:
			for _, c := range s.GetLinux().GetContainers() {
				u.Used += int64(c.GetWritableLayer().GetInodesUsed().GetValue())
			}
		default:
			d := m.diskUsage(ctx, pod, s)
			u.Containers = d.Containers
			for _, used := range d.Containers {
				u.Used += used
			}
			for _, used := range d.Volumes {
				u.Used += used
			}
		}
		usages = append(usages, u)
	}
	return usages
}

// diskUsage returns what a pod uses of the disk: writable layers, logs, and emptyDir volumes.
func (m *Manager) diskUsage(ctx context.Context, pod *corev1.Pod, s *runtimeapi.PodSandboxStats) eviction.Disk {
	d := eviction.Disk{Containers: map[string]int64{}, Volumes: map[string]int64{}}
	for _, c := range s.GetLinux().GetContainers() {
		name := c.GetAttributes().GetMetadata().GetName()
		d.Containers[name] = int64(c.GetWritableLayer().GetUsedBytes().GetValue()) + m.options.Logs.Size(pod, name)
	}
	volumes, err := m.options.Pods.VolumeUsage(ctx, pod.UID)
	if err != nil {
		return d
	}
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].EmptyDir == nil {
			continue
		}
		for _, v := range volumes {
			if v.Volume == pod.Spec.Volumes[i].Name {
				d.Volumes[v.Volume] = int64(v.Used)
			}
		}
	}
	return d
}

// enforceDiskLimits evicts pods that use more of the disk than their own limits allow.
func (m *Manager) enforceDiskLimits(ctx context.Context) {
	pods, err := m.options.Pods.List()
	if err != nil || !slices.ContainsFunc(pods, eviction.Limited) {
		return
	}
	list, err := m.options.Runtime.ListPodSandboxStats(ctx, nil)
	if err != nil {
		return
	}
	for _, s := range list {
		pod := m.options.Pods.Running(types.UID(s.GetAttributes().GetLabels()[cri.LabelPodUID]))
		if pod == nil || !eviction.Limited(pod) {
			continue
		}
		if message := eviction.Exceeded(pod, m.diskUsage(ctx, pod, s)); message != "" {
			m.options.Pods.Evict(ctx, pod.UID, message, false)
		}
	}
}
