package stats

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"skiff/internal/kubelet/volume"
)

// summary converts a reading, and the measurement of disks if there is one, to the API type.
func (p *Provider) summary(r *reading, d *disks) *statsapi.Summary {
	s := &statsapi.Summary{Node: p.node(r, d), Pods: make([]statsapi.PodStats, 0, len(r.list))}
	var specs map[types.UID]*corev1.Pod
	if d != nil {
		specs = map[types.UID]*corev1.Pod{}
		for _, pod := range p.opts.Pods.Pods() {
			specs[pod.UID] = pod
		}
	}
	for _, pod := range r.list {
		s.Pods = append(s.Pods, podStats(pod, d, specs[types.UID(pod.sandbox.Metadata.Uid)]))
	}
	return s
}

func (p *Provider) node(r *reading, d *disks) statsapi.NodeStats {
	total, swap, huge := p.opts.Machine.Memory()
	used := r.node
	if used.MemoryLimit == 0 || used.MemoryLimit > total {
		used.MemoryLimit = total
	}
	n := statsapi.NodeStats{NodeName: p.opts.NodeName, StartTime: metav1.NewTime(p.opts.Machine.BootTime()), CPU: cpu(used), Memory: memory(used), Swap: swapped(used)}
	if a := n.Memory.AvailableBytes; a != nil {
		*a -= min(*a, huge) // memory reserved for huge pages is in no cgroup, and nothing else can use it
	}
	n.Swap.SwapAvailableBytes = new(swap - min(swap, used.Swap))
	n.SystemContainers = []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, StartTime: n.StartTime, CPU: cpu(r.pods), Memory: memory(r.pods), Swap: swapped(r.pods)}}
	if d == nil {
		return n
	}
	at := metav1.NewTime(d.at)
	n.Fs = fileSystem(at, d.root, use{d.root.Capacity - d.root.Free, d.root.Inodes - d.root.InodesFree})
	n.Rlimit = &statsapi.RlimitStats{Time: at, MaxPID: new(d.tasksLimit), NumOfRunningProcesses: new(d.tasks)}
	n.Network = &statsapi.NetworkStats{Time: at}
	for _, i := range d.network.Interfaces {
		s := statsapi.InterfaceStats{Name: i.Name, RxBytes: new(i.RxBytes), RxErrors: new(i.RxErrors), TxBytes: new(i.TxBytes), TxErrors: new(i.TxErrors)}
		n.Network.Interfaces = append(n.Network.Interfaces, s)
		if i.Name == d.network.Default {
			n.Network.InterfaceStats = s
		}
	}
	n.Runtime = &statsapi.RuntimeStats{ImageFs: storeStats(d.images), ContainerFs: storeStats(d.layers)}
	if n.Runtime.ContainerFs == nil { // the runtime keeps all in one place
		n.Runtime.ContainerFs = storeStats(d.images)
	}
	return n
}

func podStats(pod podReading, d *disks, spec *corev1.Pod) statsapi.PodStats {
	meta := pod.sandbox.Metadata
	s := statsapi.PodStats{
		PodRef:    statsapi.PodReference{Name: meta.Name, Namespace: meta.Namespace, UID: meta.Uid},
		StartTime: metav1.NewTime(time.Unix(0, pod.sandbox.CreatedAt)), Containers: make([]statsapi.ContainerStats, 0, len(pod.containers)),
		CPU: cpu(pod.usage), Memory: memory(pod.usage), Swap: swapped(pod.usage), ProcessStats: &statsapi.ProcessStats{ProcessCount: new(pod.usage.Processes)},
	}
	var found *podDisks // nil if the pod is newer than the last measurement
	if d != nil {
		found = d.pods[types.UID(meta.Uid)]
	}
	var ephemeral use
	for _, c := range pod.containers {
		cs := statsapi.ContainerStats{Name: c.Metadata.Name, StartTime: metav1.NewTime(time.Unix(0, c.CreatedAt)), CPU: cpu(c.usage), Memory: memory(c.usage), Swap: swapped(c.usage)}
		if found != nil {
			if layer := d.containers[c.Id]; layer != nil {
				u := use{layer.GetUsedBytes().GetValue(), layer.GetInodesUsed().GetValue()}
				cs.Rootfs = fileSystem(metav1.NewTime(time.Unix(0, layer.Timestamp)), d.layerFS[layer.GetFsId().GetMountpoint()], u)
				ephemeral.add(u)
			}
			logs := found.logs[c.Metadata.Name]
			cs.Logs = fileSystem(metav1.NewTime(d.at), d.root, logs)
			ephemeral.add(logs)
		}
		s.Containers = append(s.Containers, cs)
	}
	if found == nil {
		return s
	}
	s.Network = network(found.network)
	ephemeral.add(found.podFiles)
	for _, v := range found.volumes {
		at := metav1.NewTime(v.Time)
		fs := FileSystem{Capacity: v.Capacity, Available: v.Available, Inodes: v.InodesLimit, InodesFree: v.InodesFree}
		s.VolumeStats = append(s.VolumeStats, statsapi.VolumeStats{Name: v.Volume, FsStats: *fileSystem(at, fs, use{v.Used, v.InodesUsed}), PVCRef: claim(spec, v.Volume)})
		if isEphemeral(spec, v) {
			ephemeral.add(use{v.Used, v.InodesUsed})
		}
	}
	s.EphemeralStorage = fileSystem(metav1.NewTime(d.at), d.root, ephemeral)
	return s
}

// find returns a pod's volume.
func find(pod *corev1.Pod, name string) *corev1.Volume {
	if pod == nil {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// isEphemeral reports whether a volume counts as the pod's ephemeral storage: volumes in memory and PersistentVolumes do not.
func isEphemeral(pod *corev1.Pod, u volume.Usage) bool {
	v := find(pod, u.Volume)
	return v != nil && (v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault || v.ConfigMap != nil || v.DownwardAPI != nil)
}

// claim returns the reference of the PersistentVolumeClaim of a volume, nil if it has none.
func claim(pod *corev1.Pod, name string) *statsapi.PVCReference {
	switch v := find(pod, name); {
	case v == nil:
		return nil
	case v.PersistentVolumeClaim != nil:
		return &statsapi.PVCReference{Name: v.PersistentVolumeClaim.ClaimName, Namespace: pod.Namespace}
	case v.Ephemeral != nil:
		return &statsapi.PVCReference{Name: pod.Name + "-" + v.Name, Namespace: pod.Namespace}
	}
	return nil
}

func cpu(u usage) *statsapi.CPUStats {
	s := &statsapi.CPUStats{Time: metav1.NewTime(u.Time), UsageCoreNanoSeconds: new(uint64(u.CPU))}
	if u.nanoCores != nil {
		s.UsageNanoCores = new(*u.nanoCores)
	}
	return s
}

func memory(u usage) *statsapi.MemoryStats {
	s := &statsapi.MemoryStats{Time: metav1.NewTime(u.Time), UsageBytes: new(u.Memory), WorkingSetBytes: new(u.WorkingSet), RSSBytes: new(u.RSS),
		PageFaults: new(u.PageFaults), MajorPageFaults: new(u.MajorPageFaults)}
	if u.MemoryLimit > 0 {
		s.AvailableBytes = new(u.MemoryLimit - min(u.MemoryLimit, u.WorkingSet))
	}
	return s
}

func swapped(u usage) *statsapi.SwapStats {
	return &statsapi.SwapStats{Time: metav1.NewTime(u.Time), SwapUsageBytes: new(u.Swap)}
}

func fileSystem(at metav1.Time, fs FileSystem, u use) *statsapi.FsStats {
	s := &statsapi.FsStats{Time: at, UsedBytes: new(u.bytes), InodesUsed: new(u.inodes)}
	if fs.Capacity > 0 {
		s.AvailableBytes, s.CapacityBytes, s.InodesFree, s.Inodes = new(fs.Available), new(fs.Capacity), new(fs.InodesFree), new(fs.Inodes)
	}
	return s
}

func storeStats(s *store) *statsapi.FsStats {
	if s == nil {
		return nil
	}
	return fileSystem(metav1.NewTime(s.at), s.fs, s.use)
}

func network(u *runtimeapi.NetworkUsage) *statsapi.NetworkStats {
	if u == nil {
		return nil
	}
	of := func(i *runtimeapi.NetworkInterfaceUsage) statsapi.InterfaceStats {
		value := func(v *runtimeapi.UInt64Value) *uint64 {
			if v == nil {
				return nil
			}
			return new(v.Value)
		}
		return statsapi.InterfaceStats{Name: i.GetName(), RxBytes: value(i.GetRxBytes()), RxErrors: value(i.GetRxErrors()), TxBytes: value(i.GetTxBytes()), TxErrors: value(i.GetTxErrors())}
	}
	s := &statsapi.NetworkStats{Time: metav1.NewTime(time.Unix(0, u.Timestamp)), InterfaceStats: of(u.DefaultInterface)}
	if u.DefaultInterface != nil {
		s.Interfaces = append(s.Interfaces, s.InterfaceStats)
	}
	for _, i := range u.Interfaces {
		if i.GetName() != s.Name {
			s.Interfaces = append(s.Interfaces, of(i))
		}
	}
	return s
}
