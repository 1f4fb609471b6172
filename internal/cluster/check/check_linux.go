package check

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"skiff/internal/mounts"
)

const (
	oldestKernel = "5.4" // the first with all that containerd, nftables and the kubelet use
	minDisk      = 2 << 30
	minMemory    = 512 << 20
)

// Machine returns the findings of all checks of this machine.
func Machine(o Options) []Finding {
	findings := []Finding{user(), kernel(), cgroups(os.DirFS("/"))}
	findings = append(findings, capabilities("/proc/self/status")...)
	findings = append(findings, overlay(o.DataDir), devices(), nftables(), memory("/proc/meminfo"), disk(o.DataDir), localVolumes(os.Getenv("PATH")+":/usr/sbin:/sbin", "/sys/module/loop"))
	if !o.Running {
		findings = append(findings, ports(o.Ports)...)
	}
	return append(findings, leftovers(o, "/proc/self/mountinfo")...)
}

func user() Finding {
	if os.Geteuid() != 0 {
		return problem("user", "run it with sudo, or use --no-node for a control plane alone", "a node needs root; this is uid %d", os.Geteuid())
	}
	return ok("user", "root")
}

func kernel() Finding {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return problem("kernel", "", "%v", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	if older(release, oldestKernel) {
		return problem("kernel", "update it", "Linux %s is older than %s", release, oldestKernel)
	}
	return ok("kernel", "Linux %s", release)
}

// older reports whether version a is older than b, by major and minor number.
func older(a, b string) bool { return slices.Compare(majorMinor(a), majorMinor(b)) < 0 }

func majorMinor(version string) []int {
	out := make([]int, 2)
	for i, part := range strings.SplitN(version, ".", 3) {
		if i == 2 {
			break
		}
		digits := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		if digits >= 0 {
			part = part[:digits]
		}
		out[i], _ = strconv.Atoi(part) // 0 if it is not a number
	}
	return out
}

// cgroupControllers are the cgroup controllers that pods' limits need.
var cgroupControllers = []string{"cpu", "cpuset", "memory", "pids"}

// cgroups checks the cgroups of a file system: of /, or of a test's.
func cgroups(root fs.FS) Finding {
	if data, err := fs.ReadFile(root, "sys/fs/cgroup/cgroup.controllers"); err == nil {
		if missing := without(cgroupControllers, strings.Fields(string(data))); len(missing) > 0 {
			return problem("cgroups", "enable them on the kernel's command line (cgroup_enable=...)", "version 2 without the controllers %s", strings.Join(missing, ", "))
		}
		return ok("cgroups", "version 2")
	}
	var missing []string
	for _, c := range cgroupControllers {
		if _, err := fs.Stat(root, "sys/fs/cgroup/"+c); err != nil {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return problem("cgroups", "mount them under /sys/fs/cgroup", "version 1 without %s", strings.Join(missing, ", "))
	}
	return ok("cgroups", "version 1")
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// capabilities checks the effective capabilities in a file like /proc/self/status.
func capabilities(status string) []Finding {
	data, err := os.ReadFile(status)
	if err != nil {
		return []Finding{problem("capabilities", "mount /proc", "%v", err)}
	}
	var effective uint64
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, "CapEff:"); found {
			effective, _ = strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	has := func(c int) bool { return effective&(1<<c) != 0 }
	var missing []string
	for c, name := range map[int]string{unix.CAP_SYS_ADMIN: "SYS_ADMIN", unix.CAP_NET_ADMIN: "NET_ADMIN", unix.CAP_SYS_CHROOT: "SYS_CHROOT", unix.CAP_MKNOD: "MKNOD"} {
		if !has(c) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	switch {
	case len(missing) > 0:
		return []Finding{problem("capabilities", "run it as real root, not in a restricted container", "without %s", strings.Join(missing, ", "))}
	case !has(unix.CAP_SYS_RESOURCE):
		return []Finding{note("capabilities", "nothing: containers get the OOM scores that are allowed, and an expanded volume grows when it is mounted next", "all but SYS_RESOURCE")}
	}
	return []Finding{ok("capabilities", "all that are needed")}
}

// overlay mounts an overlayfs below the data directory: whether it works depends on the disk, not only on the kernel.
func overlay(dataDir string) Finding {
	dir, err := os.MkdirTemp(existing(dataDir), ".skiff-check-")
	if err != nil {
		return problem("overlayfs", "make "+dataDir+" writable, or give another --data-dir", "%v", err)
	}
	defer os.RemoveAll(dir)
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return problem("overlayfs", "", "%v", err)
		}
	}
	merged := filepath.Join(dir, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return problem("overlayfs", "use a disk (--data-dir) that overlayfs can stand on, such as ext4 or xfs", "a mount in %s fails: %v", existing(dataDir), err)
	}
	if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
		return problem("overlayfs", "", "%v", err)
	}
	return ok("overlayfs", "works in %s", existing(dataDir))
}

// existing returns the directory, or the nearest parent that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// devices checks that network devices can be made, by opening a netlink socket.
func devices() Finding {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return problem("network", "use a kernel with netlink", "%v", err)
	}
	unix.Close(fd)
	forwarding, _ := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if strings.TrimSpace(string(forwarding)) != "1" {
		return ok("network", "forwarding is off and will be turned on")
	}
	return ok("network", "forwarding is on")
}

// nftables checks that the kernel has nf_tables, by opening the socket that rules are made through.
func nftables() Finding {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return problem("nftables", "use a kernel with nf_tables", "%v", err)
	}
	unix.Close(fd)
	return ok("nftables", "the kernel has it")
}

// memory checks the available memory in a file like /proc/meminfo.
func memory(meminfo string) Finding {
	f, err := os.Open(meminfo)
	if err != nil {
		return problem("memory", "mount /proc", "%v", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "MemAvailable:" {
			continue
		}
		kb, err := strconv.ParseInt(fields[1], 10, 64)
		if err == nil && kb<<10 < minMemory {
			return note("memory", "end something else", "only %d MB are available", kb>>10)
		}
		return ok("memory", "%.1f GB available", float64(kb)/(1<<20))
	}
	return note("memory", "", "the kernel does not say how much there is")
}

// disk checks the free space of the data directory's file system.
func disk(dataDir string) Finding {
	var s unix.Statfs_t
	if err := unix.Statfs(existing(dataDir), &s); err != nil {
		return problem("disk", "", "%v", err)
	}
	free := s.Bavail * uint64(s.Bsize)
	if free < minDisk {
		return problem("disk", "make room, or give another --data-dir", "%.1f GB free in %s; a cluster needs %d", float64(free)/(1<<30), existing(dataDir), minDisk>>30)
	}
	return ok("disk", "%.1f GB free in %s", float64(free)/(1<<30), existing(dataDir))
}

// localVolumes checks that the default StorageClass works: that its programs are in a list of directories, and the kernel has loop devices.
func localVolumes(path, loop string) Finding {
	var missing []string
	for _, program := range []string{"mkfs.ext4", "e2fsck", "resize2fs"} {
		if !slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
			info, err := os.Stat(filepath.Join(dir, program))
			return err == nil && info.Mode()&0o111 != 0
		}) {
			missing = append(missing, program)
		}
	}
	const otherwise = "; otherwise claims of the default StorageClass get no volumes here"
	if len(missing) > 0 {
		return note("local volumes", "install the package e2fsprogs"+otherwise, "no %s", strings.Join(missing, ", "))
	}
	if _, err := os.Stat(loop); err != nil {
		return note("local volumes", "run modprobe loop"+otherwise, "the kernel has no loop devices")
	}
	return ok("local volumes", "their programs and loop devices are there")
}

// ports checks that ports are free, by listening on them.
func ports(ports map[int]string) (findings []Finding) {
	var free []string
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			findings = append(findings, problem("port "+strconv.Itoa(port), "end what uses it (ss -ltnp shows it), or choose another", "the %s needs it, and something else listens there", ports[port]))
		case err != nil:
			findings = append(findings, problem("port "+strconv.Itoa(port), "", "%v", err))
		default:
			listener.Close()
			free = append(free, strconv.Itoa(port))
		}
	}
	if len(free) > 0 {
		findings = append(findings, ok("ports", "%s free", strings.Join(free, ", ")))
	}
	return findings
}

// leftovers checks for mounts that an earlier cluster with this data directory left.
func leftovers(o Options, mountinfo string) []Finding {
	data, err := os.ReadFile(mountinfo)
	if err != nil {
		return []Finding{problem("leftovers", "mount /proc", "%v", err)}
	}
	left := 0
	for _, m := range mounts.Parse(data) {
		if strings.HasPrefix(m.At, o.DataDir+"/") {
			left++
		}
	}
	if left > 0 && !o.Running {
		return []Finding{note("leftovers", "skiff up goes on with them; skiff down removes them", "%d mounts of an earlier run below %s", left, o.DataDir)}
	}
	return []Finding{ok("leftovers", "none")}
}
