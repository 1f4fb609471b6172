package kubelet

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
	"skiff/internal/kubelet/status"
)

const (
	pressureEvery = 10 * time.Second
	// pressureStays is for how long the node says that it has too little of something after it has enough again.
	pressureStays = 5 * time.Minute
	// evictionTakes is for how long a pod that has to go is waited for before the next one has to.
	evictionTakes = 30 * time.Second
)

// keepAlive ends pods before the node runs out of memory, disk or processes.
func (k *Kubelet) keepAlive(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-k.synced:
	}
	last := map[corev1.NodeConditionType]time.Time{}
	for ctx.Err() == nil {
		k.enforceDiskLimits(ctx)
		short := k.shortages(ctx)
		for _, s := range short {
			last[s.Condition] = time.Now()
		}
		k.setPressure(last)
		k.keepBallast(short)
		if len(short) > 0 {
			k.relieve(ctx, short[0])
		}
		sleep(ctx, k.options.PressureEvery)
	}
}

func (k *Kubelet) shortages(ctx context.Context) []eviction.Shortage {
	signals, err := k.measure(ctx)
	if err != nil {
		k.log.Warn("how much the node has left could not be measured", "error", err)
		return nil
	}
	return k.options.Eviction.Met(signals)
}

// setPressure says of the node what it has too little of.
func (k *Kubelet) setPressure(last map[corev1.NodeConditionType]time.Time) {
	is := func(c corev1.NodeConditionType) bool { return !last[c].IsZero() && time.Since(last[c]) < pressureStays }
	k.node.SetPressure(nodestatus.Pressure{Memory: is(corev1.NodeMemoryPressure), Disk: is(corev1.NodeDiskPressure), PIDs: is(corev1.NodePIDPressure)})
}

// relieve does something about a shortage: what nobody needs goes first, then a pod.
func (k *Kubelet) relieve(ctx context.Context, s eviction.Shortage) {
	tell := func() {
		k.recorder.Eventf(k.node.Ref(), corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", s.Resource)
	}
	if isFull(s) {
		defer tell() // see evict
	} else {
		tell()
	}
	if s.Condition == corev1.NodeDiskPressure {
		k.removeDeadContainers(ctx)
		k.removeUnusedImages(ctx)
		again := k.shortages(ctx)
		if !slices.ContainsFunc(again, func(o eviction.Shortage) bool { return o.Condition == s.Condition }) {
			return
		}
	}
	ranked := eviction.Rank(s.Resource, k.usages(ctx, s.Resource))
	if len(ranked) == 0 {
		k.log.Warn("the node runs out of something, and there is no pod that could go", "resource", s.Resource)
		return
	}
	first := ranked[0]
	k.evict(ctx, first.Pod.UID, eviction.Message(s, first), isFull(s))
}

// evict ends a pod because the node has to do without it, and waits for that. On a disk that is full, it is told of after that: before, nobody could
// write it down.
func (k *Kubelet) evict(ctx context.Context, uid types.UID, message string, full bool) {
	k.mu.Lock()
	w := k.workers[uid]
	k.mu.Unlock()
	if w == nil {
		return
	}
	k.log.Info("a pod has to go", "uid", uid, "why", message)
	w.mu.Lock()
	pod := w.pod
	w.evicted, w.full = &status.Failure{Reason: eviction.Reason, Message: message}, full
	w.breakOff()
	w.mu.Unlock()
	if full {
		defer k.recorder.Event(pod, corev1.EventTypeWarning, eviction.Reason, message)
	} else {
		k.recorder.Event(pod, corev1.EventTypeWarning, eviction.Reason, message)
	}
	w.wake()
	inner, cancel := context.WithTimeout(ctx, evictionTakes)
	defer cancel()
	for inner.Err() == nil && !w.isFinished() {
		sleep(inner, 50*time.Millisecond)
	}
}

// checkEvicted has a pod fail that has to go.
func (w *worker) checkEvicted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.evicted != nil && w.failed == nil {
		w.failed, w.disrupted = w.evicted, true
	}
}

func (w *worker) isFinished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cleaned
}

// usages are how much of a resource each pod uses.
func (k *Kubelet) usages(ctx context.Context, of corev1.ResourceName) (out []eviction.Usage) {
	list, err := k.options.Runtime.ListPodSandboxStats(ctx, nil)
	if err != nil {
		return nil
	}
	for _, s := range list {
		pod, _ := k.runningPod(types.UID(s.GetAttributes().GetLabels()[cri.LabelPodUID]))
		if pod == nil {
			continue
		}
		u := eviction.Usage{Pod: pod, Containers: map[string]int64{}}
		switch of {
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
			d := k.diskOf(ctx, pod, s)
			u.Containers = d.Containers
			for _, used := range d.Containers {
				u.Used += used
			}
			for _, used := range d.Volumes {
				u.Used += used
			}
		}
		out = append(out, u)
	}
	return out
}

// runningPod is a pod that runs, nil if there is none.
func (k *Kubelet) runningPod(uid types.UID) (*corev1.Pod, *worker) {
	k.mu.Lock()
	w := k.workers[uid]
	k.mu.Unlock()
	if w == nil {
		return nil, nil
	}
	pod, gone := w.latest()
	if pod == nil || gone || pod.DeletionTimestamp != nil || status.Ended(pod.Status.Phase) || w.isFinished() {
		return nil, nil
	}
	return pod, w
}

// diskOf is what a pod has on the disk.
func (k *Kubelet) diskOf(ctx context.Context, pod *corev1.Pod, s *runtimeapi.PodSandboxStats) eviction.Disk {
	d := eviction.Disk{Containers: map[string]int64{}, Volumes: map[string]int64{}}
	for _, c := range s.GetLinux().GetContainers() {
		name := c.GetAttributes().GetMetadata().GetName()
		d.Containers[name] = int64(c.GetWritableLayer().GetUsedBytes().GetValue()) + k.logs.Size(pod, name)
	}
	volumes, err := k.Usage(ctx, pod.UID)
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

// enforceDiskLimits ends pods that have more on the disk than they may.
func (k *Kubelet) enforceDiskLimits(ctx context.Context) {
	pods, err := k.podLister.List(everything)
	if err != nil || !slices.ContainsFunc(pods, eviction.Limited) {
		return
	}
	list, err := k.options.Runtime.ListPodSandboxStats(ctx, nil)
	if err != nil {
		return
	}
	for _, s := range list {
		pod, _ := k.runningPod(types.UID(s.GetAttributes().GetLabels()[cri.LabelPodUID]))
		if pod == nil || !eviction.Limited(pod) {
			continue
		}
		if why := eviction.Exceeded(pod, k.diskOf(ctx, pod, s)); why != "" {
			k.evict(ctx, pod.UID, why, false)
		}
	}
}
