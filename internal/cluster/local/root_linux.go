package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// rootBuilder makes the mounts of a node below a directory, and then makes that the root.
type rootBuilder struct{ root string }

func (r *rootBuilder) at(path string) string { return filepath.Join(r.root, path) }

func (r *rootBuilder) build(s specification, in []hierarchy) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("failed to make the node's mounts private: %w", err)
	}
	if err := unix.Mount(r.root, r.root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("failed to mount the node's disk: %w", err)
	}
	if err := errors.Join(r.system(), r.devices(), r.kernel(s, in)); err != nil {
		return err
	}
	if err := r.bindAll(s.Binds, false); err != nil {
		return err
	}
	for at, to := range s.Links {
		if err := errors.Join(os.MkdirAll(filepath.Dir(r.at(at)), 0o755), os.Symlink(to, r.at(at))); err != nil {
			return err
		}
	}
	if err := r.enter(); err != nil {
		return err
	}
	r.root = "/"
	return r.bindAll(s.Binds, true) // mounts made at one path from now on appear at the other too
}

func (r *rootBuilder) bindAll(binds []bind, own bool) error {
	for _, b := range binds {
		if b.Own != own {
			continue
		}
		if err := r.bind(b); err != nil {
			return fmt.Errorf("failed to mount %s of the node: %w", b.To, err)
		}
	}
	return nil
}

// system mounts the machine's programs read-only, and tmpfs for what need not last.
func (r *rootBuilder) system() error {
	if err := r.bind(bind{From: "/usr", To: "/usr", ReadOnly: true}); err != nil {
		return fmt.Errorf("failed to mount /usr of the node: %w", err)
	}
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		info, err := os.Lstat(name)
		switch {
		case err != nil: // not every machine has all of them
		case info.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			if err := os.Symlink(to, r.at(name)); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		case info.IsDir():
			if err := r.bind(bind{From: name, To: name, ReadOnly: true}); err != nil {
				return err
			}
		}
	}
	return r.mount("tmpfs", "/run", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
}

func (r *rootBuilder) mount(kind, at string, flags uintptr, options string) error {
	if err := os.MkdirAll(r.at(at), 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, r.at(at), kind, flags, options); err != nil {
		return fmt.Errorf("failed to mount %s of the node: %w", at, err)
	}
	return nil
}

func (r *rootBuilder) bind(b bind) error {
	from, to := b.From, r.at(b.To)
	if b.Own {
		from = r.at(b.From)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil && !fileExists(to) {
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil {
		return err
	}
	flags := uintptr(unix.MS_BIND)
	if b.ReadOnly { // what lasts is the node's own and has nothing mounted in it
		flags |= unix.MS_REC
	}
	if err := unix.Mount(from, to, "", flags, ""); err != nil {
		return err
	}
	if !b.ReadOnly {
		return nil
	}
	err = unix.MountSetattr(unix.AT_FDCWD, to, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.12
		err = unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return err
}

// device is a device file.
type device struct {
	name         string
	major, minor uint32
	mode         uint32
}

// devices are the device files that containers and their runtime need, with Linux' numbers for them.
var devices = []device{
	{"null", 1, 3, 0o666}, {"zero", 1, 5, 0o666}, {"full", 1, 7, 0o666}, {"random", 1, 8, 0o666}, {"urandom", 1, 9, 0o666}, {"kmsg", 1, 11, 0o644},
	{"tty", 5, 0, 0o666}, {"fuse", 10, 229, 0o666}, {"net/tun", 10, 200, 0o666}, {"loop-control", 10, 237, 0o660},
}

// loops is how many loop devices the nodes of a machine can name, for pods that attach images to them. The kernel makes a device when it is first opened. What
// attaches one that has no name here, as skiff does for its volumes, names it.
const loops = 64

func (r *rootBuilder) devices() error {
	if err := r.mount("tmpfs", "/dev", unix.MS_NOSUID|unix.MS_STRICTATIME, "mode=755,size=4m"); err != nil {
		return err
	}
	if err := os.Mkdir(r.at("/dev/net"), 0o755); err != nil {
		return err
	}
	for _, d := range devices {
		path := r.at("/dev/" + d.name)
		if err := unix.Mknod(path, unix.S_IFCHR|d.mode, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("failed to make /dev/%s of the node: %w", d.name, err)
		}
		if err := os.Chmod(path, os.FileMode(d.mode)); err != nil { // whatever the umask
			return err
		}
	}
	for i := range uint32(loops) {
		if err := unix.Mknod(r.at(fmt.Sprintf("/dev/loop%d", i)), unix.S_IFBLK|0o660, int(unix.Mkdev(7, i))); err != nil {
			return fmt.Errorf("failed to make /dev/loop%d of the node: %w", i, err)
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, r.at("/dev/"+name)); err != nil {
			return err
		}
	}
	return errors.Join(
		r.mount("devpts", "/dev/pts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"),
		r.mount("tmpfs", "/dev/shm", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		r.mount("mqueue", "/dev/mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
	)
}

// kernel mounts /proc, /sys, cgroups and bpf, as seen from the node's namespaces, with IDs of the node's own.
func (r *rootBuilder) kernel(s specification, in []hierarchy) error {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := errors.Join(r.mount("proc", "/proc", safe, ""), r.mount("sysfs", "/sys", safe, "")); err != nil {
		return err
	}
	for path, id := range map[string]string{"/proc/sys/kernel/random/boot_id": s.BootID, "/sys/class/dmi/id/product_uuid": s.SystemID} {
		if !fileExists(r.at(path)) {
			continue
		}
		file := filepath.Join("/run", filepath.Base(path))
		if err := os.WriteFile(r.at(file), []byte(id+"\n"), 0o444); err != nil {
			return err
		}
		if err := r.bind(bind{From: file, To: path, Own: true}); err != nil {
			return fmt.Errorf("failed to mount %s of the node: %w", path, err)
		}
	}
	if err := r.mountGroups(in); err != nil {
		return err
	}
	if fileExists(r.at("/sys/fs/bpf")) {
		return r.mount("bpf", "/sys/fs/bpf", safe, "mode=700")
	}
	return nil
}

// mountGroups mounts the cgroups where the machine has them. In the node's cgroup namespace, its own are the roots.
func (r *rootBuilder) mountGroups(in []hierarchy) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if len(in) > 1 || in[0].at != groupsRoot {
		if err := r.mount("tmpfs", groupsRoot, flags, "mode=755"); err != nil {
			return err
		}
		entries, err := os.ReadDir(groupsRoot)
		if err != nil {
			return err
		}
		for _, e := range entries { // cpu may be a link to cpu,cpuacct
			path := filepath.Join(groupsRoot, e.Name())
			if to, err := os.Readlink(path); err == nil {
				if err := os.Symlink(to, r.at(path)); err != nil {
					return err
				}
			}
		}
	}
	for _, h := range in {
		kind := "cgroup"
		if h.unified {
			kind = "cgroup2"
		}
		if err := r.mount(kind, h.at, flags, h.options); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the new root the root, and unmounts the machine's mounts, each of which would be kept for as long as the node runs.
func (r *rootBuilder) enter() error {
	if err := unix.Chdir(r.root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is then mounted over the new one
		return fmt.Errorf("failed to pivot to the node's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("failed to unmount the machine's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil { // as systemd does on machines
		return fmt.Errorf("failed to make the node's mounts shared: %w", err)
	}
	return nil
}
