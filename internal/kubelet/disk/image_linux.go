package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/localvolume"
)

// Sizes are multiples of granularity: it is more than the rest of a file system that resize2fs leaves unused because no group of blocks fits in it.
const (
	granularity = 4 << 20
	minExt4     = 16 << 20
	minXFS      = 300 << 20 // what mkfs.xfs demands
)

// roundUp returns the size of the image of a volume of at least required bytes.
func roundUp(required int64, fsType string) int64 {
	least := int64(granularity)
	switch fsType {
	case ext4:
		least = minExt4
	case xfs:
		least = minXFS
	}
	required = max(required, least)
	return (required + granularity - 1) / granularity * granularity
}

// What volumes leave free of the disk: more than the kubelet begins to evict pods at (5 %, at most 2 GiB). On a large disk that others have filled, volumes are still to be had.
const (
	reservePercent = 12
	reserveMost    = 4 << 30
)

// room returns how many bytes of the disk volumes may still take, and how many they leave.
func (d *Driver) room() (room, reserve int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.opts.Dir, &s); err != nil {
		return 0, 0, internal("failed to measure the disk of %s: %w", d.opts.Dir, err)
	}
	reserve = min(int64(s.Blocks)/100*reservePercent*s.Frsize, reserveMost)
	return max(int64(s.Bavail)*s.Frsize-reserve, 0), reserve, nil
}

// grow gives an open image a size, whose space is allocated now unless it is thin. What was in it stays, what is new reads as zeros.
func (d *Driver) grow(f *os.File, size int64, thin bool) error {
	d.allocating.Lock()
	defer d.allocating.Unlock()
	room, reserve, err := d.room()
	if err != nil {
		return err
	}
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return internal("failed to measure %s: %w", f.Name(), err)
	}
	needed := size - s.Blocks*512 // what it has allocated it keeps
	if thin {
		needed = min(needed, granularity)
	}
	if needed > room {
		return status.Errorf(codes.ResourceExhausted, "node %s has not enough disk space: the volume needs %s more, and %s are free beside the %s that are kept in reserve",
			d.opts.NodeName, bytes(needed), bytes(room), bytes(reserve))
	}
	if thin {
		err = unix.Ftruncate(int(f.Fd()), size)
	} else {
		err = retryInterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return status.Errorf(codes.ResourceExhausted, "node %s has not enough disk space for a volume of %s: %v", d.opts.NodeName, bytes(size), err)
	case errors.Is(err, unix.EFBIG):
		return status.Errorf(codes.OutOfRange, "the file system of %s on node %s holds no files of %s", d.opts.Dir, d.opts.NodeName, bytes(size))
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return status.Errorf(codes.FailedPrecondition, "the file system of %s on node %s cannot allocate the space of a file in advance: use a StorageClass with the parameter allocation: thin",
			d.opts.Dir, d.opts.NodeName)
	case err != nil:
		return internal("failed to allocate %s: %w", f.Name(), err)
	}
	return nil
}

func retryInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// build makes the image of a volume: under another name until it is whole and on the disk.
func (d *Driver) build(ctx context.Context, id string, size int64, fsType string, thin bool) (err error) {
	part := filepath.Join(d.opts.Dir, id+partSuffix)
	if err := os.Remove(part); err != nil && !os.IsNotExist(err) {
		return internal("failed to remove what is left of an earlier try: %w", err)
	}
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return internal("failed to create volume %s: %w", id, err)
	}
	defer func() {
		_ = f.Close()
		if err != nil {
			_ = os.Remove(part) // else at the next try
		}
	}()
	if thin {
		if err := unix.Fsetxattr(int(f.Fd()), allocationAttribute, []byte(localvolume.Thin), 0); err != nil {
			return status.Errorf(codes.FailedPrecondition, "thin volumes need a file system with extended attributes, unlike that of %s on node %s: %v", d.opts.Dir, d.opts.NodeName, err)
		}
	}
	if err := d.grow(f, size, thin); err != nil {
		return err
	}
	if err := d.format(ctx, part, fsType); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return internal("failed to write volume %s: %w", id, err)
	}
	if err := os.Rename(part, d.image(id)); err != nil {
		return internal("failed to create volume %s: %w", id, err)
	}
	return d.syncDir()
}

// allocationAttribute is the extended attribute of images that are thin.
const allocationAttribute = "user.skiff.allocation"

// isThin reports whether an image was made thin.
func isThin(image string) bool {
	b := make([]byte, 16)
	n, err := unix.Getxattr(image, allocationAttribute, b)
	return err == nil && string(b[:n]) == localvolume.Thin
}

// growImage grows the image of a volume, and has it on the disk before anybody counts on it.
func (d *Driver) growImage(id string, size int64) error {
	f, err := os.OpenFile(d.image(id), os.O_RDWR, 0)
	if err != nil {
		return internal("failed to expand volume %s: %w", id, err)
	}
	defer f.Close()
	if err := d.grow(f, size, isThin(d.image(id))); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return internal("failed to expand volume %s: %w", id, err)
	}
	return nil
}

// syncDir makes sure that the names in the directory of images are on the disk.
func (d *Driver) syncDir() error {
	dir, err := os.Open(d.opts.Dir)
	if err != nil {
		return internal("failed to sync %s: %w", d.opts.Dir, err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return internal("failed to sync %s: %w", d.opts.Dir, err)
	}
	return nil
}

// content is what an image or a device holds.
type content struct {
	fsType    string // ext4, xfs, or empty
	size      int64  // of the file system
	blockSize int64
}

// contentOf reads what a file or a device holds from its superblock.
func contentOf(path string) (content, error) {
	f, err := os.Open(path)
	if err != nil {
		return content{}, err
	}
	defer f.Close()
	const superblock = 1024 // where that of ext4 is
	b := make([]byte, 4096)
	if n, err := io.ReadFull(f, b); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return content{}, fmt.Errorf("failed to read %s after %d bytes: %w", path, n, err)
	}
	if string(b[:4]) == "XFSB" {
		blockSize := int64(binary.BigEndian.Uint32(b[4:]))
		return content{xfs, int64(binary.BigEndian.Uint64(b[8:])) * blockSize, blockSize}, nil
	}
	s := b[superblock:]
	if binary.LittleEndian.Uint16(s[0x38:]) != 0xef53 {
		return content{}, nil
	}
	blocks := int64(binary.LittleEndian.Uint32(s[0x4:]))
	if binary.LittleEndian.Uint32(s[0x60:])&0x80 != 0 { // 64 bits
		blocks |= int64(binary.LittleEndian.Uint32(s[0x150:])) << 32
	}
	blockSize := int64(1024) << binary.LittleEndian.Uint32(s[0x18:])
	return content{ext4, blocks * blockSize, blockSize}, nil
}

// bytes returns a size as a person reads it.
func bytes(n int64) string {
	const mib = 1 << 20
	return resource.NewQuantity((n+mib-1)/mib*mib, resource.BinarySI).String()
}
