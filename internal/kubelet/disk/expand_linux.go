package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// resizeDevice makes the size of a volume's device that of its image, if it is attached.
func (d *Driver) resizeDevice(id string) error {
	dev, err := attached(d.image(id))
	if err == nil && dev != nil {
		defer dev.Close()
		err = dev.resize()
	}
	if err != nil {
		return internal("failed to expand volume %s: %w", id, err)
	}
	return nil
}

// NodeExpandVolume implements csi.NodeServer. It grows a file system that is mounted; one that is not grows when it is staged.
func (d *Driver) NodeExpandVolume(ctx context.Context, rq *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	id, path := rq.GetVolumeId(), rq.GetVolumePath()
	if id == "" || path == "" {
		return nil, status.Error(codes.InvalidArgument, "the call names no volume or no path")
	}
	unlock, err := d.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	size, err := d.existing(id)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s: %v", id, path, err)
	}
	if err := d.resizeDevice(id); err != nil {
		return nil, err
	}
	has, err := contentOf(d.image(id))
	if err != nil {
		return nil, internal("failed to read volume %s: %w", id, err)
	}
	at, err := mountedAt(path)
	if err != nil {
		return nil, internal("failed to expand volume %s: %w", id, err)
	}
	if at != 0 && has.fsType != "" {
		if err := d.growMounted(ctx, path, has, size); err != nil {
			return nil, internal("failed to expand the file system of volume %s: %w", id, err)
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// growMounted grows a mounted file system to a size.
func (d *Driver) growMounted(ctx context.Context, path string, has content, size int64) error {
	if has.fsType == xfs {
		return d.run(ctx, "xfs_growfs", nil, path)
	}
	if has.size+granularity > size {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = growExt4(dir, size/has.blockSize)
	if errors.Is(err, unix.EPERM) {
		return status.Errorf(codes.FailedPrecondition, "node %s may not expand a mounted file system (its kubelet lacks the capability CAP_SYS_RESOURCE): it grows when its pods have been deleted and the next one starts",
			d.opts.NodeName)
	}
	return err
}

// resizeFS is EXT4_IOC_RESIZE_FS, _IOW('f', 16, __u64).
const resizeFS = 0x40086610

func growExt4(dir *os.File, blocks int64) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), resizeFS, uintptr(unsafe.Pointer(&blocks))); errno != 0 {
		return fmt.Errorf("resizing ext4 to %d blocks: %w", blocks, errno)
	}
	return nil
}
