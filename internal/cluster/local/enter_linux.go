package local

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"skiff/internal/timerslack"
)

// onThread runs f on a thread of its own, which ends with f, so that f may change the thread's namespaces and cgroups.
func onThread(f func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the main thread cannot end before the process does; while it is locked, another one is used
			defer runtime.UnlockOSThread()
			failed <- onThread(f)
			return
		}
		failed <- f()
	}()
	return <-failed
}

// inNetwork runs f in a network namespace.
func inNetwork(path string, f func() error) error {
	return onThread(func() error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("failed to open the network namespace %s: %w", path, err)
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("failed to enter the network namespace %s: %w", path, err)
		}
		return f()
	})
}

// spaces are the namespaces of a node, in the order in which they are entered: the mount namespace last, as the others are opened by path before.
var spaces = []struct {
	name string
	flag int
}{
	{"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS},
}

// start starts a program in a node, as a child of this process in a session of its own. It is started by a thread that has entered the node.
func (m *machine) start(cmd *exec.Cmd) error {
	return onThread(func() error {
		var fds []int
		defer func() {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}()
		for _, s := range spaces {
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", m.pid, s.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("node %s has ended: %w", m.node.Name, err)
			}
			fds = append(fds, fd)
		}
		if !m.alive() { // the pid may have been used again before these were opened
			return fmt.Errorf("node %s has ended", m.node.Name)
		}
		unified, err := m.groups.enter(unix.Gettid())
		if err != nil {
			return err
		}
		attributes := &syscall.SysProcAttr{Setsid: true}
		if unified != nil {
			defer unified.Close()
			attributes.UseCgroupFD, attributes.CgroupFD = true, int(unified.Fd())
		}
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root cannot enter a mount namespace
			return fmt.Errorf("failed to unshare the thread's root: %w", err)
		}
		for i, s := range spaces {
			if err := unix.Setns(fds[i], s.flag); err != nil {
				return fmt.Errorf("failed to enter the %s namespace of node %s: %w", s.name, m.node.Name, err)
			}
		}
		cmd.SysProcAttr, cmd.Dir = attributes, "/"
		cmd.Env = append(cmd.Env, nodeEnvironment...)
		return timerslack.Start(cmd, timerslack.Ample)
	})
}

// nodeEnvironment is the environment of programs in a node: nothing of the process that started them.
var nodeEnvironment = []string{"PATH=/opt/skiff/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
