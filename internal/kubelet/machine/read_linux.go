package machine

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Read returns what the machine has.
func Read(o Options) (*Machine, error) {
	memory, swap, err := readMemory()
	if err != nil {
		return nil, err
	}
	m := &Machine{Capacity: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(o.MaxPods), resource.DecimalSI),
	}}
	if disk, _, err := DiskSpace(o.RootDir); err == nil {
		m.Capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk, resource.BinarySI)
	}
	for _, size := range allHugePages() {
		m.Capacity[corev1.ResourceName("hugepages-"+size.name)] = *resource.NewQuantity(size.bytes*size.count, resource.BinarySI)
	}
	maps.Copy(m.Capacity, o.Capacity)
	m.Memory = m.Capacity.Memory().Value()
	m.setAllocatable()

	var names unix.Utsname
	if err := unix.Uname(&names); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	machineID := readLine("/etc/machine-id")
	m.Info = corev1.NodeSystemInfo{
		MachineID: machineID, SystemUUID: cmp.Or(strings.ToLower(readLine("/sys/class/dmi/id/product_uuid")), machineID), BootID: readLine("/proc/sys/kernel/random/boot_id"),
		KernelVersion: unix.ByteSliceToString(names.Release[:]), OSImage: osImage(), OperatingSystem: "linux", Architecture: runtime.GOARCH, KubeletVersion: KubeletVersion,
	}
	if swap > 0 {
		m.Info.Swap = &corev1.NodeSwapStatus{Capacity: &swap}
	}
	return m, nil
}

// meminfo returns the fields of /proc/meminfo in bytes, by name.
func meminfo() (map[string]int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	fields := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		kilobytes, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if n, err := strconv.ParseInt(kilobytes, 10, 64); err == nil {
			fields[name] = n << 10
		}
	}
	return fields, nil
}

// readMemory returns the machine's memory and swap in bytes. The memory limit of the root cgroup counts as the machine's memory.
func readMemory() (memory, swap int64, err error) {
	fields, err := meminfo()
	if err != nil {
		return 0, 0, err
	}
	memory, swap = fields["MemTotal"], fields["SwapTotal"]
	if memory == 0 {
		return 0, 0, fmt.Errorf("/proc/meminfo has no MemTotal")
	}
	if limit, _, ok := rootLimit(cgroupMount); ok {
		memory = min(memory, limit)
	}
	return memory, swap, nil
}

// DiskSpace returns the size of the file system that a directory is on, and how much of it is free, in bytes. If the directory does not exist, its nearest
// parent that does stands for it.
func DiskSpace(dir string) (size, free int64, err error) {
	var s unix.Statfs_t
	for {
		err = unix.Statfs(dir, &s)
		if up := parent(dir); err == unix.ENOENT && up != dir {
			dir = up
			continue
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", dir, err)
		}
		return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, nil
	}
}

func parent(dir string) string {
	if i := strings.LastIndexByte(strings.TrimRight(dir, "/"), '/'); i > 0 {
		return dir[:i]
	}
	return "/"
}

// hugePages are the huge pages of one size.
type hugePages struct {
	name  string // the size as resource names have it: 2Mi
	bytes int64  // the size of one page
	count int64  // how many are reserved
}

// allHugePages returns the sizes of huge pages that the kernel supports, and how many of each are reserved.
func allHugePages() (out []hugePages) {
	const dir = "/sys/kernel/mm/hugepages"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		kilo, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		count, err := strconv.ParseInt(readLine(dir+"/"+e.Name()+"/nr_hugepages"), 10, 64)
		if err != nil {
			continue
		}
		out = append(out, hugePages{name: resource.NewQuantity(kilo<<10, resource.BinarySI).String(), bytes: kilo << 10, count: count})
	}
	return out
}
