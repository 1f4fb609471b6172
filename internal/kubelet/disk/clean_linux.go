package disk

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Clean unmounts and detaches all volumes of a directory. Their images stay. Nobody may use them any more: what is still in use is detached when its last user ends.
func Clean(dir string) error {
	images, err := filesIn(dir, imageSuffix)
	failed := []error{err}
	for _, image := range images {
		dev, err := attached(image)
		failed = append(failed, err)
		if dev != nil {
			failed = append(failed, unmountDevice(dev), dev.detach(), dev.Close())
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("failed to detach the volumes of %s: %w", dir, err)
	}
	return nil
}

// unmountDevice unmounts a device everywhere. The device node of a block volume that is bound somewhere is not the device's, but the file system's of /dev.
func unmountDevice(dev *device) error {
	points, err := mountPoints(dev.rdev())
	if err != nil {
		return err
	}
	for _, point := range points {
		err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // gone already
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}
