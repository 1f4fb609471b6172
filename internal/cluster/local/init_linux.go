package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// InitCommand is skiff's command that sets up the machine of a node around itself, as its first process, and then executes the one that only reaps:
// skiff node-init CLUSTER NODE. It reads its specification from standard input.
const InitCommand = "node-init"

// specification is what the first process of a node sets up.
type specification struct {
	Cluster, Node string
	Root          string // the node's disk
	Group         string // path of its cgroups
	BootID        string
	SystemID      string
	Links         map[string]string
	Binds         []bind
}

// bind is a bind mount of a directory or file of the machine, or of the node, in the node.
type bind struct {
	From     string // on this machine; in the node, if Own
	To       string
	Own      bool
	ReadOnly bool
}

// reportFD is the descriptor to which the first process writes "ready" or an error.
const reportFD = 3

const ready = "ready"

// Init runs the first process of a node. It returns only if it fails.
func Init() error {
	unix.CloseOnExec(reportFD)
	report := os.NewFile(reportFD, "report")
	err := initialize(report)
	fmt.Fprint(report, err)
	return err
}

func initialize(report io.Writer) error {
	if os.Getpid() != 1 {
		return errors.New("skiff runs this command itself, as the first process of a node")
	}
	runtime.LockOSThread()
	var s specification
	if err := json.NewDecoder(io.LimitReader(os.Stdin, 1<<20)).Decode(&s); err != nil {
		return fmt.Errorf("failed to parse the specification of the node: %w", err)
	}
	in, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range in {
		if err := os.WriteFile(filepath.Join(h.at, s.Group, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("failed to enter cgroup %s in %s: %w", s.Group, h.at, err)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("failed to unshare the cgroup namespace: %w", err)
	}
	r := &rootBuilder{root: s.Root}
	if err := r.build(s, in); err != nil {
		return err
	}
	if err := leaveRoot(in); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(s.Node)); err != nil {
		return fmt.Errorf("failed to set the host name: %w", err)
	}
	if err := initNetwork(); err != nil {
		return err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range 3 { // the standard descriptors were the machine's
		if err := unix.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(report, ready); err != nil {
		return err // the process that started the node has ended
	}
	err = syscall.Exec(initProgram, []string{"skiff", InitCommand, s.Cluster, s.Node}, nil)
	return fmt.Errorf("failed to execute %s: %w", initProgram, err)
}

// initProgram is the path of the program of the first process, in the node.
const initProgram = "/opt/skiff/bin/init"

// leaveRoot moves this process, alone in its cgroups by now, to a leaf with version 2, where a cgroup with processes cannot have children with controllers.
func leaveRoot(in []hierarchy) error {
	for _, h := range in {
		if !h.unified {
			continue
		}
		dir := filepath.Join(h.at, leaf)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("failed to enter cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// initNetwork sets loopback up and turns IP forwarding on.
func initNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("failed to set up loopback: %w", err)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}
