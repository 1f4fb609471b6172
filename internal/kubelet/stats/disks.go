package stats

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/volume"
)

const (
	// Disks are not measured again for diskTTL, or for diskShare times as long as the last measurement took, up to maxDiskTTL.
	diskTTL    = 10 * time.Second
	maxDiskTTL = time.Minute
	diskShare  = 20
)

// disks is the result of measuring disks and of the runtime's statistics, which take longer than reading cgroups.
type disks struct {
	at  time.Time
	ttl time.Duration

	root              FileSystem
	images, layers    *store
	network           Network
	tasks, tasksLimit int64
	pods              map[types.UID]*podDisks
	containers        map[string]*runtimeapi.FilesystemUsage // writable layers, by container ID
	layerFS           map[string]FileSystem                  // by mount point
}

// store is a file system that the runtime stores images or layers on.
type store struct {
	use
	at time.Time
	fs FileSystem
}

// use is how much is used of a file system.
type use struct{ bytes, inodes uint64 }

func (u *use) add(v use) { u.bytes, u.inodes = u.bytes+v.bytes, u.inodes+v.inodes }

type podDisks struct {
	network  *runtimeapi.NetworkUsage
	volumes  []volume.Usage
	logs     map[string]use // by container
	podFiles use            // logs that belong to no container, and the hosts file
}

// cover reports whether disks were measured for all pods and containers of a reading.
func (d *disks) cover(r *reading) bool {
	for _, pod := range r.list {
		found := d.pods[types.UID(pod.sandbox.Metadata.Uid)]
		if found == nil {
			return false
		}
		for _, c := range pod.containers {
			if _, ok := found.logs[c.Metadata.Name]; !ok {
				return false
			}
		}
	}
	return true
}

// measureDisks measures the disk usage of the pods of a reading. What cannot be measured is left out.
func (p *Provider) measureDisks(ctx context.Context, r *reading) (*disks, error) {
	began := p.opts.Clock.Now()
	d := &disks{at: began, pods: map[types.UID]*podDisks{}, containers: map[string]*runtimeapi.FilesystemUsage{}, layerFS: map[string]FileSystem{}}
	var err error
	if d.root, err = p.opts.Machine.FileSystem(p.opts.RootDir); err != nil {
		return nil, fmt.Errorf("failed to measure the node's file system: %w", err)
	}
	if d.network, err = p.opts.Machine.Network(); err != nil {
		return nil, fmt.Errorf("failed to measure the node's network: %w", err)
	}
	if d.tasks, d.tasksLimit, err = p.opts.Machine.Tasks(); err != nil {
		return nil, fmt.Errorf("failed to count the node's processes: %w", err)
	}
	for _, pod := range r.list {
		meta := pod.sandbox.Metadata
		uid := types.UID(meta.Uid)
		found := &podDisks{logs: map[string]use{}}
		if found.volumes, err = p.opts.Volumes.Usage(ctx, uid); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			p.opts.Log.Warn("failed to measure a pod's volumes", "pod", meta.Namespace+"/"+meta.Name, "error", err)
		}
		logs := filepath.Join(p.opts.LogDir, meta.Namespace+"_"+meta.Name+"_"+meta.Uid)
		found.podFiles = filesIn(logs)
		found.podFiles.add(file(filepath.Join(p.opts.RootDir, "pods", meta.Uid, "etc-hosts")))
		for _, c := range pod.containers {
			found.logs[c.Metadata.Name] = filesIn(filepath.Join(logs, c.Metadata.Name))
		}
		d.pods[uid] = found
	}
	if err := p.addRuntimeStats(ctx, d); err != nil {
		return nil, err
	}
	d.ttl = min(max(diskTTL, diskShare*p.opts.Clock.Since(began)), maxDiskTTL)
	return d, nil
}

// addRuntimeStats adds the network usage of pods and the writable layers of containers, which the runtime measures.
func (p *Provider) addRuntimeStats(ctx context.Context, d *disks) error {
	info, err := p.opts.Runtime.ImageFsInfo(ctx)
	if err != nil {
		return fmt.Errorf("failed to find the image file system: %w", err)
	}
	d.images, d.layers = p.store(info.ImageFilesystems), p.store(info.ContainerFilesystems)

	// One pod that is just being removed must not keep all others from being seen.
	list, err := p.opts.Runtime.ListPodSandboxStats(ctx, &runtimeapi.PodSandboxStatsFilter{})
	var containers []*runtimeapi.ContainerStats
	if status.Code(err) == codes.Unimplemented { // an older runtime, without network statistics
		containers, err = p.opts.Runtime.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{})
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.opts.Log.Warn("failed to list the statistics of pods", "error", err)
	}
	for _, s := range list {
		if pod := d.pods[types.UID(s.GetAttributes().GetMetadata().GetUid())]; pod != nil && s.GetLinux().GetNetwork() != nil {
			pod.network = s.Linux.Network
		}
		containers = append(containers, s.GetLinux().GetContainers()...)
	}
	for _, c := range containers {
		layer := c.GetWritableLayer()
		if layer == nil {
			continue
		}
		d.containers[c.GetAttributes().GetId()] = layer
		if point := layer.GetFsId().GetMountpoint(); point != "" {
			if _, known := d.layerFS[point]; !known {
				if fs, err := p.opts.Machine.FileSystem(point); err == nil {
					d.layerFS[point] = fs
				}
			}
		}
	}
	return nil
}

// store returns the first of the runtime's file systems.
func (p *Provider) store(list []*runtimeapi.FilesystemUsage) *store {
	if len(list) == 0 {
		return nil
	}
	s := &store{use: use{list[0].GetUsedBytes().GetValue(), list[0].GetInodesUsed().GetValue()}, at: time.Unix(0, list[0].Timestamp)}
	if fs, err := p.opts.Machine.FileSystem(list[0].GetFsId().GetMountpoint()); err == nil {
		s.fs = fs
	}
	return s
}

// filesIn returns what the files in a directory take, without those in directories below it.
func filesIn(dir string) (u use) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return use{} // there is none yet
	}
	for _, e := range entries {
		if !e.IsDir() {
			u.add(file(filepath.Join(dir, e.Name())))
		}
	}
	return u
}
