package stats

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// procMachine reads /proc.
type procMachine struct{}

func (procMachine) BootTime() time.Time {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "btime "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); err == nil {
				return time.Unix(n, 0)
			}
		}
	}
	return time.Time{}
}

func (procMachine) Memory() (total, swap, huge uint64) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, 0
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			total = n << 10
		case "SwapTotal:":
			swap = n << 10
		case "Hugetlb:":
			huge = n << 10
		}
	}
	return total, swap, huge
}

func (procMachine) FileSystem(dir string) (FileSystem, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return FileSystem{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(s.Bsize)
	return FileSystem{Capacity: s.Blocks * block, Free: s.Bfree * block, Available: s.Bavail * block, Inodes: s.Files, InodesFree: s.Ffree}, nil
}

// What is not counted as the node's: itself, and the ends of pods' links.
var notTheNodes = []string{"lo", "veth", "docker", "nerdctl"}

func (procMachine) Network() (Network, error) {
	routes, err := os.ReadFile("/proc/self/net/route")
	if err != nil {
		return Network{}, err
	}
	counts, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return Network{}, err
	}
	return parseNetwork(routes, counts), nil
}

// parseNetwork reads /proc/net/route and /proc/net/dev.
func parseNetwork(routes, counts []byte) (n Network) {
	best := uint64(math.MaxUint64)
	for line := range bytes.Lines(routes) {
		// Iface Destination Gateway Flags RefCnt Use Metric Mask …
		f := strings.Fields(string(line))
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		if metric, err := strconv.ParseUint(f[6], 10, 64); err == nil && metric < best {
			n.Default, best = f[0], metric
		}
	}
	n.Default = cmp.Or(n.Default, "eth0")
	for line := range bytes.Lines(counts) {
		// name: bytes packets errs drop fifo frame compressed multicast bytes packets errs …
		name, rest, ok := strings.Cut(string(line), ":")
		f := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || len(f) < 11 || isNotTheNodes(name) {
			continue
		}
		number := func(i int) uint64 { v, _ := strconv.ParseUint(f[i], 10, 64); return v }
		n.Interfaces = append(n.Interfaces, Interface{Name: name, RxBytes: number(0), RxErrors: number(2), TxBytes: number(8), TxErrors: number(10)})
	}
	return n
}

func isNotTheNodes(name string) bool {
	for _, prefix := range notTheNodes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func (procMachine) Tasks() (running, limit int64, err error) {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, 0, err
	}
	// 1.36 3.49 4.53 2/3518 3715089
	if f := strings.Fields(string(load)); len(f) == 5 {
		_, all, _ := strings.Cut(f[3], "/")
		running, err = strconv.ParseInt(all, 10, 64)
	}
	if err != nil || running == 0 {
		return 0, 0, fmt.Errorf("/proc/loadavg makes no sense: %q", load)
	}
	limit = math.MaxInt64
	for _, name := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return 0, 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
		limit = min(limit, n)
	}
	return running, limit, nil
}

// file returns what a file takes; nothing if it is not there.
func file(path string) use {
	info, err := os.Lstat(path)
	if err != nil {
		return use{}
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return use{}
	}
	return use{uint64(s.Blocks) * 512, 1}
}
