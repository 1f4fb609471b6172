package kubelet

import (
	"context"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/eviction"
)

// measureMachine is how much the node has left.
func (k *Kubelet) measureMachine(ctx context.Context) (s eviction.Signals, err error) {
	if s.Memory, err = k.measureMemory(); err != nil {
		return s, err
	}
	if s.NodeDisk, s.NodeInodes, err = measureDisk(k.options.RootDir); err != nil {
		return s, err
	}
	if info, err := k.options.Runtime.ImageFsInfo(ctx); err == nil && len(info.GetImageFilesystems()) > 0 {
		if disk, inodes, err := measureDisk(info.ImageFilesystems[0].GetFsId().GetMountpoint()); err == nil {
			s.ImageDisk, s.ImageInodes = disk, inodes
		}
	}
	s.PIDs = measurePIDs()
	return s, nil
}

// measureMemory is how much memory is left: of the machine, or of less, if the node is to have less.
func (k *Kubelet) measureMemory() (eviction.Amount, error) {
	total, available, err := readAvailable()
	if err != nil {
		return eviction.Amount{}, err
	}
	a := eviction.Amount{Available: available, Capacity: total}
	groups, ok := k.options.Cgroups.(interface{ PodsUsage() (cgroup.Usage, error) })
	if k.machine.memory >= total || !ok {
		return a, nil
	}
	used, err := groups.PodsUsage()
	if err != nil {
		return a, nil // there is no group as long as there are no pods
	}
	a.Capacity = k.machine.memory
	a.Available = min(a.Available, k.machine.memory-int64(used.WorkingSet))
	return a, nil
}

func readAvailable() (total, available int64, err error) {
	said, err := meminfo()
	total, available = said["MemTotal"], said["MemAvailable"]
	if limit, used, ok := rootLimit(groupsMount); ok && limit < total {
		total, available = limit, min(available, limit-used)
	}
	return total, available, err
}

func measureDisk(dir string) (bytes, inodes eviction.Amount, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return bytes, inodes, err
	}
	return eviction.Amount{Available: int64(s.Bavail) * s.Bsize, Capacity: int64(s.Blocks) * s.Bsize}, eviction.Amount{Available: int64(s.Ffree), Capacity: int64(s.Files)}, nil
}

// measurePIDs is how many processes there can be, and how many more. What cannot be read was not measured.
func measurePIDs() (a eviction.Amount) {
	most, err := strconv.ParseInt(readLine("/proc/sys/kernel/pid_max"), 10, 64)
	if err != nil {
		return a
	}
	if threads, err := strconv.ParseInt(readLine("/proc/sys/kernel/threads-max"), 10, 64); err == nil {
		most = min(most, threads)
	}
	fields := strings.Fields(readLine("/proc/loadavg"))
	if len(fields) < 4 {
		return a
	}
	_, all, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return a
	}
	return eviction.Amount{Available: most - n, Capacity: most}
}
