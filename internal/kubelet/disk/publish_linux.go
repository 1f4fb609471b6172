package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodePublishVolume implements csi.NodeServer. It binds the staged volume, or the device of a block volume, to the target path.
func (d *Driver) NodePublishVolume(ctx context.Context, rq *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, staging, target := rq.GetVolumeId(), rq.GetStagingTargetPath(), rq.GetTargetPath()
	if id == "" || target == "" {
		return nil, status.Error(codes.InvalidArgument, "the call names no volume or no target path")
	}
	if rq.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "the call names no volume capability")
	}
	if _, err := checkCapability(rq.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if staging == "" {
		return nil, status.Error(codes.FailedPrecondition, "the call names no staging path")
	}
	unlock, err := d.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := d.existing(id); err != nil {
		return nil, err
	}
	dev, err := attached(d.image(id))
	if err != nil {
		return nil, internal("failed to publish volume %s: %w", id, err)
	}
	if dev == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged", id)
	}
	defer dev.Close()
	block := rq.GetVolumeCapability().GetBlock() != nil
	source := dev.Name()
	if !block {
		there, err := mountedAt(staging)
		if err != nil {
			return nil, internal("failed to publish volume %s: %w", id, err)
		}
		if there != dev.rdev() {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", id, staging)
		}
		source = staging
	}
	there, err := mountedAt(target)
	switch {
	case err != nil:
		return nil, internal("failed to publish volume %s: %w", id, err)
	case there == dev.rdev():
		return &csi.NodePublishVolumeResponse{}, nil
	case there != 0:
		return nil, status.Errorf(codes.FailedPrecondition, "something else is mounted at %s", target)
	}
	if rq.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		if err := notElsewhere(dev, id, staging); err != nil {
			return nil, err
		}
	}
	if err := bind(source, target, block, rq.GetReadonly()); err != nil {
		return nil, internal("failed to publish volume %s at %s: %w", id, target, err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// notElsewhere returns an error if a file system is mounted at any path but where it is staged. What has a block volume cannot be told here; the kubelet looks after that.
func notElsewhere(dev *device, id, staging string) error {
	points, err := mountPoints(dev.rdev())
	if err != nil {
		return internal("failed to find out where volume %s is mounted: %w", id, err)
	}
	for _, point := range points {
		if !samePlace(point, staging) {
			return status.Errorf(codes.FailedPrecondition, "volume %s is for one pod, and is mounted at %s", id, point)
		}
	}
	return nil
}

// samePlace reports whether two paths are the same name in the same directory. What is mounted in the kubelet's directory is in the mount table once for each path of it.
func samePlace(a, b string) bool {
	in, err := os.Stat(filepath.Dir(a))
	if err != nil {
		return false
	}
	other, err := os.Stat(filepath.Dir(b))
	return err == nil && os.SameFile(in, other) && filepath.Base(a) == filepath.Base(b)
}

// bind binds a directory to a directory, or a device to a file.
func bind(source, target string, block, readOnly bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if block {
		f, err := os.OpenFile(target, os.O_CREATE, 0o640)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	} else if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return errors.Join(err, os.Remove(target))
	}
	if !readOnly {
		return nil
	}
	var s unix.Statfs_t
	err := unix.Statfs(target, &s)
	if err == nil { // the flags that the mount has must be repeated
		const keep = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME
		err = unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|uintptr(s.Flags)&keep, "")
	}
	if err != nil {
		return errors.Join(err, unix.Unmount(target, unix.UMOUNT_NOFOLLOW), os.Remove(target))
	}
	return nil
}

// NodeUnpublishVolume implements csi.NodeServer.
func (d *Driver) NodeUnpublishVolume(ctx context.Context, rq *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := rq.GetVolumeId(), rq.GetTargetPath()
	if id == "" || target == "" {
		return nil, status.Error(codes.InvalidArgument, "the call names no volume or no target path")
	}
	unlock, err := d.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := unmount(target); err != nil {
		return nil, internal("failed to unpublish volume %s: %w", id, err)
	}
	if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
		return nil, internal("failed to unpublish volume %s: %w", id, err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
