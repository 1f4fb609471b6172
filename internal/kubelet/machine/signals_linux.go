package machine

import (
	"context"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skiff/internal/kubelet/eviction"
)

// Signals measures how much memory, disk and process IDs the node has left. used may be nil.
func (m *Machine) Signals(ctx context.Context, rootDir string, images ImageFs, used PodsUsage) (s eviction.Signals, err error) {
	if s.Memory, err = m.availableMemory(used); err != nil {
		return s, err
	}
	if s.NodeDisk, s.NodeInodes, err = availableDisk(rootDir); err != nil {
		return s, err
	}
	if info, err := images.ImageFsInfo(ctx); err == nil && len(info.GetImageFilesystems()) > 0 {
		if disk, inodes, err := availableDisk(info.ImageFilesystems[0].GetFsId().GetMountpoint()); err == nil {
			s.ImageDisk, s.ImageInodes = disk, inodes
		}
	}
	s.PIDs = availablePIDs()
	return s, nil
}

// availableMemory returns how much memory is left: of the machine, or of the node's capacity if that was set lower.
func (m *Machine) availableMemory(used PodsUsage) (eviction.Amount, error) {
	total, available, err := readAvailable()
	if err != nil {
		return eviction.Amount{}, err
	}
	a := eviction.Amount{Available: available, Capacity: total}
	if m.Memory >= total || used == nil {
		return a, nil
	}
	usage, err := used()
	if err != nil {
		return a, nil // the cgroup of all pods does not exist as long as there are no pods
	}
	a.Capacity = m.Memory
	a.Available = min(a.Available, m.Memory-int64(usage.WorkingSet))
	return a, nil
}

func readAvailable() (total, available int64, err error) {
	fields, err := meminfo()
	total, available = fields["MemTotal"], fields["MemAvailable"]
	if limit, used, ok := rootLimit(cgroupMount); ok && limit < total {
		total, available = limit, min(available, limit-used)
	}
	return total, available, err
}

func availableDisk(dir string) (bytes, inodes eviction.Amount, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return bytes, inodes, err
	}
	return eviction.Amount{Available: int64(s.Bavail) * s.Bsize, Capacity: int64(s.Blocks) * s.Bsize}, eviction.Amount{Available: int64(s.Ffree), Capacity: int64(s.Files)}, nil
}

// availablePIDs returns how many process IDs the kernel can give out and how many of them are free, or zero for both if that cannot be read.
func availablePIDs() (a eviction.Amount) {
	limit, err := strconv.ParseInt(readLine("/proc/sys/kernel/pid_max"), 10, 64)
	if err != nil {
		return a
	}
	if threads, err := strconv.ParseInt(readLine("/proc/sys/kernel/threads-max"), 10, 64); err == nil {
		limit = min(limit, threads)
	}
	fields := strings.Fields(readLine("/proc/loadavg"))
	if len(fields) < 4 {
		return a
	}
	_, tasks, _ := strings.Cut(fields[3], "/") // "running/all"
	n, err := strconv.ParseInt(tasks, 10, 64)
	if err != nil {
		return a
	}
	return eviction.Amount{Available: limit - n, Capacity: limit}
}
