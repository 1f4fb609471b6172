package kubelet

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

// readMachine finds out what the machine has.
func readMachine(o *Options) (machine, error) {
	memory, swap, err := readMemory()
	if err != nil {
		return machine{}, err
	}
	m := machine{capacity: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(o.MaxPods), resource.DecimalSI),
	}}
	if disk, _, err := diskSpace(o.RootDir); err == nil {
		m.capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk, resource.BinarySI)
	}
	for _, size := range hugePageSizes() {
		m.capacity[corev1.ResourceName("hugepages-"+size.name)] = *resource.NewQuantity(size.bytes*size.pages, resource.BinarySI)
	}
	maps.Copy(m.capacity, o.Capacity)
	m.memory = m.capacity.Memory().Value()
	m.setAllocatable()

	var names unix.Utsname
	if err := unix.Uname(&names); err != nil {
		return machine{}, fmt.Errorf("uname: %w", err)
	}
	machineID := readLine("/etc/machine-id")
	m.info = corev1.NodeSystemInfo{
		MachineID: machineID, SystemUUID: cmp.Or(strings.ToLower(readLine("/sys/class/dmi/id/product_uuid")), machineID), BootID: readLine("/proc/sys/kernel/random/boot_id"),
		KernelVersion: unix.ByteSliceToString(names.Release[:]), OSImage: osImage(), OperatingSystem: "linux", Architecture: runtime.GOARCH, KubeletVersion: Version,
	}
	if swap > 0 {
		m.info.Swap = &corev1.NodeSwapStatus{Capacity: &swap}
	}
	return m, nil
}

// meminfo is what the kernel says of memory, in bytes, by its names for it.
func meminfo() (map[string]int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		kilobytes, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if n, err := strconv.ParseInt(kilobytes, 10, 64); err == nil {
			found[name] = n << 10
		}
	}
	return found, nil
}

// readMemory is how much memory and swap there is, in bytes.
func readMemory() (memory, swap int64, err error) {
	said, err := meminfo()
	if err != nil {
		return 0, 0, err
	}
	memory, swap = said["MemTotal"], said["SwapTotal"]
	if memory == 0 {
		return 0, 0, fmt.Errorf("/proc/meminfo does not say how much memory there is")
	}
	if limit, _, ok := rootLimit(groupsMount); ok {
		memory = min(memory, limit)
	}
	return memory, swap, nil
}

// diskSpace is how large the file system of a directory, or of the nearest one above it that exists, is, and how much of it is free, in bytes.
func diskSpace(dir string) (size, free int64, err error) {
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

type pageSize struct {
	name         string // 2Mi
	bytes, pages int64
}

// hugePageSizes are the sizes of huge pages that there are, and how many of each were set aside.
func hugePageSizes() (out []pageSize) {
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
		pages, err := strconv.ParseInt(readLine(dir+"/"+e.Name()+"/nr_hugepages"), 10, 64)
		if err != nil {
			continue
		}
		out = append(out, pageSize{name: resource.NewQuantity(kilo<<10, resource.BinarySI).String(), bytes: kilo << 10, pages: pages})
	}
	return out
}
