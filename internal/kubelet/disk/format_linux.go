package disk

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// File systems that a volume can have.
const (
	ext4 = "ext4"
	xfs  = "xfs"
)

// packages are the packages of the usual distributions that have the programs.
var packages = map[string]string{"mkfs.ext4": "e2fsprogs", "e2fsck": "e2fsprogs", "resize2fs": "e2fsprogs", "mkfs.xfs": "xfsprogs", "xfs_growfs": "xfsprogs"}

// run runs a program of the node. ok are the exit codes beside 0 that are a success.
func (d *Driver) run(ctx context.Context, program string, ok []int, args ...string) error {
	path, err := find(program)
	if err != nil {
		return status.Errorf(codes.FailedPrecondition, "node %s has no program %s: install the package %s", d.opts.NodeName, program, packages[program])
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		for _, code := range ok {
			if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == code {
				return nil
			}
		}
		return internal("%s failed: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// find returns the path of a program, which PATH may not have: those of administrators are often left out of it.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// format makes a file system in an image that reads as zeros. It keeps the space of the image allocated, and writes no more than it must.
func (d *Driver) format(ctx context.Context, image, fsType string) error {
	switch fsType {
	case ext4:
		return d.run(ctx, "mkfs.ext4", nil, "-q", "-F", "-m", "0", "-b", "4096", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", image)
	case xfs:
		// The prototype is an empty root directory that everybody may write to. It has to be in a file, which a crash leaves like half an image.
		prototype := strings.TrimSuffix(image, partSuffix) + ".prototype" + partSuffix
		if err := os.WriteFile(prototype, []byte("/\n0 0\nd--777 0 0\n$\n"), 0o600); err != nil {
			return internal("failed to write the prototype of the file system: %w", err)
		}
		return errors.Join(d.run(ctx, "mkfs.xfs", nil, "-q", "-K", "-p", prototype, image), os.Remove(prototype))
	}
	return nil
}

// growUnmounted grows the ext4 file system of a device that is not mounted to the size of the device.
func (d *Driver) growUnmounted(ctx context.Context, device string) error {
	if err := d.run(ctx, "e2fsck", []int{1}, "-f", "-p", device); err != nil { // 1: it has repaired all there was
		return err
	}
	return d.run(ctx, "resize2fs", nil, device)
}
