package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// device is an open loop device that is attached to an image. While it is open it stays attached.
type device struct {
	*os.File
	number int
	flags  uint32
}

// The numbers that Linux has for loop devices.
const (
	loopMajor        = 7
	miscMajor        = 10
	loopControlMinor = 237
)

func (d *device) rdev() uint64 { return unix.Mkdev(loopMajor, uint32(d.number)) }

// attach returns the device of an image, which it attaches if it is not attached. Two devices of one image would destroy the file system in it. An automatic one is
// detached by the kernel when it is last closed or unmounted, even if this process is killed before that.
func attach(image string, automatic bool) (*device, error) {
	if dev, err := attached(image); dev != nil || err != nil {
		return dev, err
	}
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	control, err := openDevice("/dev/loop-control", unix.S_IFCHR, unix.Mkdev(miscMajor, loopControlMinor))
	if err != nil {
		return nil, fmt.Errorf("this node has no loop devices (the kernel module loop): %w", err)
	}
	defer control.Close()
	for range 100 { // others take devices at the same time
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("failed to find a free loop device: %w", err)
		}
		f, err := openLoop(number)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_DIRECT_IO}}
		if automatic {
			config.Info.Flags |= unix.LO_FLAGS_AUTOCLEAR
		}
		copy(config.Info.File_name[:len(config.Info.File_name)-1], image)
		err = unix.IoctlLoopConfigure(int(f.Fd()), &config)
		if err == nil {
			return &device{f, number, config.Info.Flags}, nil
		}
		_ = f.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("failed to attach %s to a loop device (that takes Linux 5.8): %w", image, err)
		}
	}
	return nil, fmt.Errorf("failed to attach %s: all free loop devices were taken by others", image)
}

func openLoop(number int) (*os.File, error) {
	return openDevice("/dev/loop"+strconv.Itoa(number), unix.S_IFBLK, unix.Mkdev(loopMajor, uint32(number)))
}

// openDevice opens a device, whose file is made where nobody else makes it: /dev of a container has few.
func openDevice(path string, kind uint32, number uint64) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := unix.Mknod(path, kind|0o600, int(number)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("failed to make %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// attached returns the device that an image is attached to, or nil if there is none. It stays attached until it is closed.
func attached(image string) (*device, error) {
	var want unix.Stat_t
	if err := unix.Stat(image, &want); err != nil {
		return nil, fmt.Errorf("failed to find %s: %w", image, err)
	}
	var found *device
	named := func(backing string) bool { return filepath.Base(backing) == filepath.Base(image) }
	err := eachDevice(named, func(dev *device, info *unix.LoopInfo64) (more bool, err error) {
		if info.Inode != want.Ino || info.Device != want.Dev {
			return true, dev.Close()
		}
		found = dev
		return false, nil
	})
	return found, err
}

// eachDevice calls visit with each attached device that is likely to be meant, by the path of its file. visit closes it or keeps it, and says whether to go on.
func eachDevice(likely func(backing string) bool, visit func(*device, *unix.LoopInfo64) (more bool, err error)) error {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is well formed
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || !likely(strings.TrimSuffix(strings.TrimSpace(string(data)), " (deleted)")) {
			continue // an error is that it has been detached
		}
		number, err := strconv.Atoi(strings.TrimPrefix(strings.Split(file, "/")[3], "loop"))
		if err != nil {
			continue
		}
		f, err := openLoop(number)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("failed to open loop device %d: %w", number, err)
		}
		info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
		if errors.Is(err, unix.ENXIO) {
			_ = f.Close()
			continue
		}
		if err != nil {
			return errors.Join(fmt.Errorf("failed to read what loop device %d is attached to: %w", number, err), f.Close())
		}
		if more, err := visit(&device{f, number, info.Flags}, info); err != nil || !more {
			return err
		}
	}
	return nil
}

// inUse reports whether a file system of the device is mounted, in any mount namespace.
func (d *device) inUse() (bool, error) {
	fd, err := unix.Open(d.Name(), unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("failed to open %s: %w", d.Name(), err)
	}
	return false, unix.Close(fd)
}

// detach detaches a device that is not automatic. The kernel does it when the last who has it open closes it.
func (d *device) detach() error {
	if d.flags&unix.LO_FLAGS_AUTOCLEAR != 0 {
		return nil
	}
	if err := unix.IoctlSetInt(int(d.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("failed to detach %s: %w", d.Name(), err)
	}
	return nil
}

// resize makes the size of the device that of its image.
func (d *device) resize() error {
	if err := unix.IoctlSetInt(int(d.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("failed to resize %s: %w", d.Name(), err)
	}
	return nil
}

// keepAllocated has the device refuse to discard blocks: their space in the image would be given back, and others could take it.
func (d *device) keepAllocated() {
	_ = os.WriteFile(fmt.Sprintf("/sys/block/loop%d/queue/discard_max_bytes", d.number), []byte("0"), 0) // where /sys cannot be written nobody discards either
}
