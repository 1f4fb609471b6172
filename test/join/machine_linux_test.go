package join

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"skiff/test/alone"
	"skiff/test/program"
)

// What the test program is started again for.
const (
	holdEnv  = "SKIFF_JOIN_HOLD"  // to be the first process of a machine
	enterEnv = "SKIFF_JOIN_ENTER" // to become a program on the machine of a process
)

func TestMain(m *testing.M) {
	if os.Getenv(holdEnv) != "" {
		fail(hold())
	}
	if pid := os.Getenv(enterEnv); pid != "" {
		fail(enter(pid))
	}
	alone.Main(m)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	os.Exit(0)
}

// hold makes what a machine has for itself beside its network, and keeps it until its input ends.
func hold() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/run", "/var/lib/cni", "/etc/cni", "/opt/cni"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if err := unix.Sethostname([]byte("second")); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// enter becomes a program on a machine.
func enter(pid string) error {
	os.Unsetenv(enterEnv)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	for kind, flag := range map[string]int{"net": unix.CLONE_NEWNET, "uts": unix.CLONE_NEWUTS, "mnt": unix.CLONE_NEWNS} {
		fd, err := unix.Open(filepath.Join("/proc", pid, "ns", kind), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Setns(fd, flag); err != nil {
			return fmt.Errorf("entering %s: %w", kind, err)
		}
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// machine is a second machine: namespaces for network, mounts and host name, connected with the first.
type machine struct {
	pid  int
	dir  string // for its data
	home string
	ns   netns.NsHandle
}

const (
	firstIP  = "192.0.2.1"
	secondIP = "192.0.2.2"
)

// newMachine makes a machine and connects it with this one, which has had no network until then.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{dir: filepath.Join(t.TempDir(), "data"), home: t.TempDir()}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), holdEnv+"=1"), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal("the machine is not ready: ", err)
	}
	m.pid = cmd.Process.Pid
	m.ns, err = netns.GetFromPid(m.pid)
	must(t, err)
	t.Cleanup(func() { m.ns.Close() })
	m.connect(t)
	return m
}

func (m *machine) connect(t *testing.T) {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "peer"}))
	peer, err := netlink.LinkByName("peer")
	must(t, err)
	must(t, netlink.LinkSetNsFd(peer, int(m.ns)))
	there, err := netlink.NewHandleAt(m.ns)
	must(t, err)
	defer there.Close()
	here, err := netlink.NewHandle()
	must(t, err)
	defer here.Close()
	for _, side := range []struct {
		handle          *netlink.Handle
		name, ip, other string
	}{{here, "uplink", firstIP, secondIP}, {there, "peer", secondIP, firstIP}} {
		lo, err := side.handle.LinkByName("lo")
		must(t, err)
		must(t, side.handle.LinkSetUp(lo))
		link, err := side.handle.LinkByName(side.name)
		must(t, err)
		must(t, side.handle.LinkSetUp(link))
		must(t, side.handle.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(side.ip), Mask: net.CIDRMask(24, 32)}}))
		must(t, side.handle.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(side.other)}))
	}
}

// shut has the machine take no connection from outside any more, to itself or to what is behind it.
func (m *machine) shut(t *testing.T) {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(int(m.ns)))
	must(t, err)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "firewall"})
	for name, hook := range map[string]*nftables.ChainHook{"input": nftables.ChainHookInput, "forward": nftables.ChainHookForward} {
		chain := c.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: append([]byte("peer"), make([]byte, 12)...)},
			&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Counter{},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
	}
	must(t, c.Flush())
}

// command returns a command that runs skiff on the machine.
func (m *machine) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{program.Path(t)}, args...)...)
	cmd.Env = append(os.Environ(), enterEnv+"="+strconv.Itoa(m.pid), "HOME="+m.home, "KUBECONFIG=")
	return cmd
}

// skiff runs the program on the machine to its end.
func (m *machine) skiff(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	cmd := m.command(t, args...)
	stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// process is a running skiff.
type process struct {
	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{}
}

func (m *machine) agent(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, m.command(t, append([]string{"agent", "--data-dir", m.dir}, args...)...))
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	p := &process{cmd: cmd, log: log, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		if t.Failed() {
			t.Log(p.text())
		}
		log.Close()
	})
	return p
}

func (p *process) end(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func (p *process) text() string {
	data, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// archive returns the path of an image that "make images" has built.
func archive(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "build", "images", name+".tar"))
	must(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v\nmake images builds it", err)
	}
	return path
}

// groupsLeft returns the cgroups of a data directory that still exist.
func groupsLeft(pattern string) []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/*" + pattern) // the pattern is well formed
	more, _ := filepath.Glob("/sys/fs/cgroup" + pattern)
	return append(found, more...)
}

func contains(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
