package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	defaultFS  = "ext4" // what a disk gets that holds nothing, unless the volume names another
	foundNone  = 2      // blkid's exit code where it recognizes nothing
	unrepaired = 4      // among fsck's: errors are left
)

// fsName matches the names of file systems. They become part of the name of a program.
var fsName = regexp.MustCompile(`^[a-z0-9]{1,16}$`)

// mountDisk mounts a disk. One that holds nothing is given a file system first, and one with a file system is checked, unless it is mounted somewhere.
func mountDisk(ctx context.Context, disk, dir, fsType string, options []string) error {
	if fsType != "" && !fsName.MatchString(fsType) {
		return fmt.Errorf("%q is not the name of a file system", fsType)
	}
	holds, err := contentOf(ctx, disk)
	if err != nil {
		return err
	}
	if holds == "" {
		fsType = cmp.Or(fsType, defaultFS)
		err = format(ctx, disk, fsType)
	} else {
		fsType = cmp.Or(fsType, holds)
		err = check(ctx, disk)
	}
	if err != nil {
		return err
	}
	flags, data := diskOptions(options)
	if err := unix.Mount(disk, dir, fsType, flags, strings.Join(data, ",")); err != nil {
		return fmt.Errorf("failed to mount the volume as %q, it holds %q: mounting %s: %w", fsType, holds, disk, err)
	}
	return nil
}

// contentOf names what a disk holds: the type of a file system, of a member of an array or of a partition table; empty if nothing is recognized.
func contentOf(ctx context.Context, disk string) (string, error) {
	cmd := exec.CommandContext(ctx, program("blkid"), "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "value", disk)
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == foundNone {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("failed to find out what %s holds, so it is left alone: blkid: %w", disk, err)
	}
	holds, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if holds == "" {
		return "", fmt.Errorf("failed to find out what %s holds, so it is left alone: blkid said nothing", disk)
	}
	return holds, nil
}

func format(ctx context.Context, disk, fsType string) error {
	var args []string
	switch fsType {
	case "ext3", "ext4":
		args = []string{"-F", "-m0"} // a whole disk, none of it kept for root
	case "xfs":
		args = []string{"-f"}
	}
	out, err := exec.CommandContext(ctx, program("mkfs."+fsType), append(args, disk)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("formatting %s as %s: %w: %s", disk, fsType, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// check repairs the file system of a disk. Where it is mounted, or no program can check it, it is taken as it is: mounting fails if it is damaged.
func check(ctx context.Context, disk string) error {
	if f, err := os.OpenFile(disk, os.O_RDONLY|unix.O_EXCL, 0); err != nil {
		return nil // mounted: only the kernel has it for itself
	} else if err := f.Close(); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program("fsck"), "-a", disk).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode()&unrepaired == 0 {
		return ctx.Err()
	}
	return fmt.Errorf("'fsck' found errors on device %s but could not correct them: %s", disk, strings.TrimSpace(string(out)))
}

// diskOptions splits mount options into flags of the kernel and what is for the file system.
func diskOptions(options []string) (flags uintptr, data []string) {
	for _, o := range options {
		if flag, ok := bindOptions[o]; ok {
			flags |= flag
		} else {
			data = append(data, o)
		}
	}
	return flags, data
}

// makeReadOnly makes one mount read-only; the file system may be mounted elsewhere.
func makeReadOnly(dir string) error {
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("making %s read-only: %w", dir, err)
	}
	return nil
}

// program returns the path of a program for administrators, which PATH may not have.
func program(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return "/usr/sbin/" + name
}
