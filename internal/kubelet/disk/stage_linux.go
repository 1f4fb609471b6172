package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeStageVolume implements csi.NodeServer. It attaches a volume and mounts it; a block volume is only attached.
func (d *Driver) NodeStageVolume(ctx context.Context, rq *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id, target := rq.GetVolumeId(), rq.GetStagingTargetPath()
	if id == "" || target == "" {
		return nil, status.Error(codes.InvalidArgument, "the call names no volume or no staging path")
	}
	if rq.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "the call names no volume capability")
	}
	if _, err := checkCapability(rq.GetVolumeCapability()); err != nil {
		return nil, err
	}
	unlock, err := d.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := d.existing(id); err != nil {
		return nil, err
	}
	has, err := contentOf(d.image(id))
	if err != nil {
		return nil, internal("failed to read volume %s: %w", id, err)
	}
	block := rq.GetVolumeCapability().GetBlock() != nil
	if !block && has.fsType == "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s has no file system: it was created as a block volume", id)
	}
	dev, err := attach(d.image(id), !block)
	if err != nil {
		return nil, internal("failed to attach volume %s: %w", id, err)
	}
	defer dev.Close() // what is mounted stays attached, and what is not is detached
	if !isThin(d.image(id)) {
		dev.keepAllocated()
	}
	if block {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	if err := d.mount(ctx, dev, id, target, has, rq.GetVolumeCapability().GetMount().GetMountFlags()); err != nil {
		return nil, internal("failed to mount volume %s: %w", id, err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// mount mounts the file system of a device, which grows to the size of the device.
func (d *Driver) mount(ctx context.Context, dev *device, id, target string, has content, options []string) error {
	there, err := mountedAt(target)
	if err != nil {
		return err
	}
	if there != 0 {
		if there == dev.rdev() {
			return nil
		}
		return status.Errorf(codes.FailedPrecondition, "something else is mounted at %s", target)
	}
	size, err := os.Stat(d.image(id))
	if err != nil {
		return err
	}
	grow := has.size+granularity <= size.Size()
	inUse, err := dev.inUse()
	if err != nil {
		return err
	}
	if grow && has.fsType == ext4 && !inUse {
		if err := d.growUnmounted(ctx, dev.Name()); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	flags, data := mountOptions(options)
	if has.fsType == ext4 {
		// Inode tables that have not been used read as zeros, as all of a new image does: writing zeros would take time, and could free their space in the image.
		data = append(data, "noinit_itable")
	}
	if err := unix.Mount(dev.Name(), target, has.fsType, flags, strings.Join(data, ",")); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", dev.Name(), target, err)
	}
	if grow && has.fsType == xfs && flags&unix.MS_RDONLY == 0 {
		err = d.run(ctx, "xfs_growfs", nil, target)
	}
	if err == nil && flags&unix.MS_RDONLY == 0 {
		err = openToAll(target)
	}
	if err != nil {
		return errors.Join(err, unix.Unmount(target, unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

// openToAll lets everybody write to a new file system, as the classes of other distributions do: many pods run as users of their own, without an fsGroup. A new one is told by
// mkfs's directory lost+found, which databases that want an empty directory stumble over; e2fsck makes another if it ever needs one.
func openToAll(root string) error {
	lost := filepath.Join(root, "lost+found")
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	if len(entries) != 1 || entries[0].Name() != filepath.Base(lost) {
		return nil
	}
	if err := os.Chmod(root, 0o777); err != nil {
		return err
	}
	if err := os.Remove(lost); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// NodeUnstageVolume implements csi.NodeServer.
func (d *Driver) NodeUnstageVolume(ctx context.Context, rq *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, target := rq.GetVolumeId(), rq.GetStagingTargetPath()
	if id == "" || target == "" {
		return nil, status.Error(codes.InvalidArgument, "the call names no volume or no staging path")
	}
	unlock, err := d.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := unmount(target); err != nil {
		return nil, internal("failed to unmount volume %s: %w", id, err)
	}
	if _, err := d.existing(id); status.Code(err) == codes.NotFound {
		return &csi.NodeUnstageVolumeResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	dev, err := attached(d.image(id))
	if err != nil {
		return nil, internal("failed to detach volume %s: %w", id, err)
	}
	if dev != nil {
		defer dev.Close()
		if err := dev.detach(); err != nil {
			return nil, internal("failed to detach volume %s: %w", id, err)
		}
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}
