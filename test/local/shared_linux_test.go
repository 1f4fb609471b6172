package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"skiff/test/program"
)

const (
	// sharedDriver is the name of the CSI driver for tests, whose volumes can be attached to any node.
	sharedDriver = "directories.test"
	// sharedDir is where nodes have the directory that they share: its volumes, and what pods report.
	sharedDir = "/var/lib/shared"
)

// share mounts a directory of this machine in a node.
func (c *cluster) share(t testing.TB, node, dir string) {
	t.Helper()
	init := c.states(t)[node].InitPID
	err := onThread(func() error {
		tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(tree)
		mounts, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", init), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(mounts)
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(mounts, unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := os.MkdirAll(sharedDir, 0o755); err != nil {
			return err
		}
		return unix.MoveMount(tree, "", unix.AT_FDCWD, sharedDir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
	if err != nil {
		t.Fatalf("failed to mount %s in node %s: %v", dir, node, err)
	}
}

// onThread runs f on a thread that ends with it, which is not the process's first one: /proc/self shows that one.
func onThread(f func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			failed <- onThread(f)
			return
		}
		failed <- f()
	}()
	return <-failed
}

// process is one that is killed and started again.
type process struct {
	name string
	args []string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

// buildDriver builds the CSI driver for tests, which is a module of its own.
func buildDriver(t testing.TB, to string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", to, ".")
	cmd.Dir, cmd.Env = filepath.Join("..", "csi"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("failed to build the CSI driver: %v\n%s", err, out)
	}
}

// newDriver starts a process of the CSI driver for tests: that of a node, or the one that creates, attaches and expands volumes if node is empty. dir is the
// shared directory.
func (c *cluster) newDriver(t testing.TB, node, dir string) *process {
	t.Helper()
	d := &process{name: "driver of " + node, log: filepath.Join(dir, "driver-"+node+".log")}
	if node == "" {
		d.name = "driver's controller"
		d.args = []string{filepath.Join(dir, "driver"), "--dir", filepath.Join(dir, "csi"), "--endpoint", filepath.Join(dir, "controller.sock")}
	} else {
		const plugins = "/var/lib/kubelet/"
		d.args = []string{"nsenter", "-a", "-t", fmt.Sprint(c.states(t)[node].InitPID), sharedDir + "/driver", "--dir", sharedDir + "/csi", "--node", node,
			"--endpoint", plugins + "plugins/" + sharedDriver + "/csi.sock", "--registration", plugins + "plugins_registry/" + sharedDriver + "-reg.sock"}
	}
	d.args = append(d.args, "--name", sharedDriver, "--attach", "--shared")
	d.run(t)
	return d
}

// newPart starts a part of the control plane in a process of its own.
func (c *cluster) newPart(t testing.TB, dir, part string, flags ...string) *process {
	t.Helper()
	p := &process{name: part, log: filepath.Join(dir, part+".log"),
		args: append([]string{program.Path(t), part, "--kubeconfig", filepath.Join(c.dir, part+".kubeconfig"), "--leader-elect=false"}, flags...)}
	p.run(t)
	return p
}

// run starts a process until the test ends.
func (p *process) run(t testing.TB) {
	t.Helper()
	p.start(t)
	t.Cleanup(func() { p.kill(t) })
}

func (p *process) start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd, p.done = exec.Command(p.args[0], p.args[1:]...), make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		defer close(done)
		_ = cmd.Wait() // it is killed
	}(p.cmd, p.done)
}

// kill kills the process. nsenter, whose child it is in a node, ends with it.
func (p *process) kill(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.done:
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Errorf("the %s does not end", p.name)
			return
		}
		pid := p.cmd.Process.Pid
		if p.args[0] == "nsenter" {
			children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
			if n, _ := fmt.Sscan(strings.TrimSpace(string(children)), &pid); n == 0 {
				continue // it has not started yet, or has just ended
			}
		}
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// dialController returns a connection to the driver's controller.
func dialController(t testing.TB, dir string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "controller.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// mountedVolumes returns the volumes of the driver that are mounted in a node, with one place of each.
func mountedVolumes(init int) map[string]string {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", init))
	if err != nil {
		return nil
	}
	found := map[string]string{}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasSuffix(fields[3], "/data") {
			continue
		}
		if id := filepath.Base(filepath.Dir(fields[3])); strings.HasPrefix(id, "vol-") {
			found[id] = fields[4]
		}
	}
	return found
}

// briefly bounds one request of a loop that will try again.
func briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 10*time.Second)
}
