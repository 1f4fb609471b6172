package alone

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// apart lists the directories that are the tests' own and empty at first. Those of CNI need not exist on the machine.
var apart = []string{"/run", "/var/lib/cni", "/etc/cni", "/opt/cni"}

func again(next string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, stage+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, stage+"="+next)
	return cmd
}

func outer() (int, error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("these tests need root")
	}
	runtime.LockOSThread() // the child ends with the thread that started it
	cmd := again("init")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if err == nil {
		return 0, nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	return 1, err
}

func prepare() (int, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 1, err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return 1, err
	}
	for _, dir := range apart {
		if err := place(dir); err != nil {
			return 1, fmt.Errorf("a %s of its own: %w", dir, err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return 1, err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return 1, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return 1, err
	}
	cmd := again("tests")
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, err
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == cmd.Process.Pid:
			return 1, errors.New("the tests were ended by " + status.Signal().String())
		}
	}
}

// place makes sure that a mount point exists, and stays. It is not created on the machine itself: if somebody removed
// it there, the mount would be removed too. It is created in an overlay over its parent directory.
func place(dir string) error {
	parent := filepath.Dir(dir)
	if parent == "/" {
		return nil
	}
	const scratch = "/run" // it is the tests' own by now
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, ""); err != nil {
		return err
	}
	defer unix.Unmount(scratch, unix.MNT_DETACH) // the overlay keeps using it without its path
	upper, work := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("overlay", parent, "overlay", 0, "lowerdir="+parent+",upperdir="+upper+",workdir="+work); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
