package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Usage is what a cgroup and all cgroups below it use.
type Usage struct {
	Time            time.Time
	CPU             time.Duration // CPU time since the cgroup was created
	Memory          uint64        // bytes, with cached files
	WorkingSet      uint64        // bytes without inactive file pages
	RSS             uint64        // bytes of anonymous memory
	Swap            uint64
	MemoryLimit     uint64 // 0 if there is none
	PageFaults      uint64
	MajorPageFaults uint64
	Processes       uint64 // threads included; 0 for the root of a hierarchy, where the kernel does not count
}

// ErrNotFound says that a pod or container has no cgroup.
var ErrNotFound = errors.New("no such cgroup")

// Usage returns what a pod uses.
func (m *Manager) Usage(uid types.UID) (Usage, error) {
	path, err := m.find(uid)
	if err != nil {
		return Usage{}, err
	}
	return m.read(path)
}

// ContainerUsage returns what a container of a pod uses, by the container's ID without the runtime's name before it.
func (m *Manager) ContainerUsage(uid types.UID, id string) (Usage, error) {
	path, err := m.find(uid)
	if err != nil {
		return Usage{}, err
	}
	if id == "" || strings.Contains(id, "/") || strings.Contains(id, "..") {
		return Usage{}, fmt.Errorf("container %q of pod %s: %w", id, uid, ErrNotFound)
	}
	for _, name := range []string{id, "cri-containerd-" + id + ".scope", "crio-" + id + ".scope"} {
		if dir, ok := m.dir("memory", filepath.Join(path, name)); ok && exists(dir) {
			return m.read(filepath.Join(path, name))
		}
	}
	return Usage{}, fmt.Errorf("container %s of pod %s: %w", id, uid, ErrNotFound)
}

// NodeUsage returns what everything on the node uses: all groups below its root.
func (m *Manager) NodeUsage() (Usage, error) { return m.read(m.rootPath()) }

// PodsUsage returns what all pods together use.
func (m *Manager) PodsUsage() (Usage, error) { return m.read(m.path("")) }

// find returns the path of a pod's cgroup, whatever class it has.
func (m *Manager) find(uid types.UID) (string, error) {
	if err := checkUID(uid); err != nil {
		return "", err
	}
	for _, class := range classes {
		path := m.path(class, podName(uid))
		if dir, ok := m.dir("memory", path); ok && exists(dir) {
			return path, nil
		}
	}
	return "", fmt.Errorf("pod %s: %w", uid, ErrNotFound)
}

func (m *Manager) read(path string) (Usage, error) {
	u, err := Usage{}, error(nil)
	if m.version == 2 {
		u, err = m.read2(path)
	} else {
		u, err = m.read1(path)
	}
	if errors.Is(err, fs.ErrNotExist) || isRemoved(err) {
		err = fmt.Errorf("%s: %w", path, ErrNotFound)
	}
	u.Time = time.Now()
	return u, err
}

// isRemoved reports whether reading a file failed because its cgroup was removed after the file was opened.
func isRemoved(err error) bool { return errors.Is(err, syscall.ENODEV) }

func (m *Manager) read1(path string) (Usage, error) {
	cpu, _ := m.dir("cpuacct", path)
	memory, _ := m.dir("memory", path)
	used, err := readNumber(filepath.Join(cpu, "cpuacct.usage"))
	if err != nil {
		return Usage{}, err
	}
	u := Usage{CPU: time.Duration(used)}
	if u.Memory, err = readNumber(filepath.Join(memory, "memory.usage_in_bytes")); err != nil {
		return Usage{}, err
	}
	stat, err := readTable(filepath.Join(memory, "memory.stat"))
	if err != nil {
		return Usage{}, err
	}
	u.RSS, u.Swap = stat["total_rss"], stat["total_swap"]
	u.PageFaults, u.MajorPageFaults = stat["total_pgfault"], stat["total_pgmajfault"]
	u.WorkingSet = u.Memory - min(u.Memory, stat["total_inactive_file"])
	if limit := stat["hierarchical_memory_limit"]; limit < 1<<62 {
		u.MemoryLimit = limit
	}
	if pids, ok := m.dir("pids", path); ok {
		u.Processes, err = readOptional(filepath.Join(pids, "pids.current"))
	}
	return u, err
}

func (m *Manager) read2(path string) (Usage, error) {
	dir, _ := m.dir("", path)
	cpu, err := readTable(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return Usage{}, err
	}
	stat, err := readTable(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return Usage{}, err
	}
	u := Usage{CPU: time.Duration(cpu["usage_usec"]) * time.Microsecond, RSS: stat["anon"], PageFaults: stat["pgfault"], MajorPageFaults: stat["pgmajfault"]}
	u.Memory, err = readNumber(filepath.Join(dir, "memory.current"))
	if errors.Is(err, fs.ErrNotExist) { // the top has no such file
		u.Memory, err = memoryInUse()
	}
	if err != nil {
		return Usage{}, err
	}
	u.WorkingSet = u.Memory - min(u.Memory, stat["inactive_file"])
	if u.Swap, err = readOptional(filepath.Join(dir, "memory.swap.current")); err != nil {
		return Usage{}, err
	}
	if u.MemoryLimit, err = readOptional(filepath.Join(dir, "memory.max")); err != nil {
		return Usage{}, err
	}
	u.Processes, err = readOptional(filepath.Join(dir, "pids.current"))
	return u, err
}

// memoryInUse returns the memory of the machine that is not free.
func memoryInUse() (uint64, error) {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	info := table(bytes.ReplaceAll(content, []byte(":"), nil))
	return (info["MemTotal"] - min(info["MemTotal"], info["MemFree"])) << 10, nil
}

func readTable(file string) (map[string]uint64, error) {
	content, err := os.ReadFile(file)
	return table(content), err
}

// table reads lines of a name and a number; lines of any other form are skipped.
func table(content []byte) map[string]uint64 {
	m := map[string]uint64{}
	for line := range bytes.Lines(content) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if n, err := strconv.ParseUint(string(fields[1]), 10, 64); err == nil {
			m[string(fields[0])] = n
		}
	}
	return m
}

func readNumber(file string) (uint64, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	text := string(bytes.TrimSpace(content))
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// readOptional reads a file that not every group or kernel has.
func readOptional(file string) (uint64, error) {
	n, err := readNumber(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return n, err
}
