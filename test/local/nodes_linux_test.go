package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/cluster/local"
	"skiff/test/program"
	"skiff/test/traces"
)

// upTime is how long `skiff up --nodes 3` may take until all are Ready, on a machine that is busy with other tests; alone it takes a second or two.
const upTime = 8 * time.Second

// TestNodes is the life of a cluster of three nodes.
func TestNodes(t *testing.T) {
	c := newCluster(t, "ship")
	c.load(t, "testserver")
	began := time.Now()
	c.up(t, "--nodes", "3", "--name", c.name, "--node-monitor-grace-period", "12s", "--node-monitor-period", "1s")
	if took := time.Since(began); took > upTime {
		t.Errorf("three nodes took %v", took)
	}
	nodes := map[string]*corev1.Node{}
	for i := range 3 {
		name := fmt.Sprintf("ship-%d", i+1)
		nodes[name] = c.ready(t, name, true)
	}
	t.Run("machines", func(t *testing.T) { c.checkMachines(t, nodes) })
	c.everywhere(t)
	first := c.running(t, 3)
	t.Run("logs and exec", func(t *testing.T) {
		for node, pod := range first {
			if out := c.kubectl(t, "logs", pod.Name); !strings.Contains(out, "serving at :80") {
				t.Errorf("the pod on %s says %q", node, out)
			}
			if out := c.kubectl(t, "exec", pod.Name, "--", "/testserver", "get", "http://127.0.0.1/hostname"); strings.TrimSpace(out) != pod.Name {
				t.Errorf("in the pod on %s the host is called %q", node, out)
			}
		}
	})
	t.Run("pods reach each other", func(t *testing.T) {
		for from, pod := range first {
			for to, other := range first {
				out := c.kubectl(t, "exec", pod.Name, "--", "/testserver", "get", "http://"+other.Status.PodIP+"/hostname")
				if strings.TrimSpace(out) != other.Name {
					t.Errorf("from %s the pod on %s says %q", from, to, out)
				}
			}
		}
	})
	var volumes []string
	t.Run("local volumes", func(t *testing.T) { volumes = c.localVolumes(t) })
	t.Run("stop and up", func(t *testing.T) {
		c.skiff(t, "stop")
		for name, s := range c.states(t) {
			if !s.Running || s.PID != 0 {
				t.Errorf("after skiff stop %s is %+v", name, s)
			}
		}
		if out := c.skiff(t, "status"); !strings.Contains(out, "cluster ship is not running") || !strings.Contains(out, "ship-3") {
			t.Errorf("skiff status says:\n%s", out)
		}
		c.up(t)
		c.same(t, first, c.running(t, 3), true)
	})
	t.Run("partition and heal", func(t *testing.T) { c.partition(t) })
	t.Run("node stop and start", func(t *testing.T) {
		boot := nodes["ship-3"].Status.NodeInfo.BootID
		c.skiff(t, "node", "stop", "ship-3")
		if s := c.states(t)["ship-3"]; s.Running {
			t.Errorf("it is %+v", s)
		}
		c.skiff(t, "node", "start", "ship-3")
		eventually(t, "the kubelet says that the machine was started anew", func() error {
			if now := c.ready(t, "ship-3", true).Status.NodeInfo.BootID; now == boot {
				return fmt.Errorf("the boot id is %s as before", now)
			}
			return nil
		})
		c.same(t, first, c.running(t, 3), false)
	})
	t.Run("everything killed", func(t *testing.T) {
		c.killAll(t)
		c.up(t)
		c.same(t, first, c.running(t, 3), false)
	})
	t.Run("reboot", func(t *testing.T) {
		c.reboot(t)
		c.up(t)
		c.same(t, first, c.running(t, 3), false)
	})
	t.Run("down and up", func(t *testing.T) {
		c.skiff(t, "down")
		traces.NothingLeft(t, "skiff down", c.before, c.group())
		c.up(t)
		c.same(t, first, c.running(t, 3), false)
	})
	c.skiff(t, "down", "--purge")
	if entries, err := os.ReadDir(c.dir); err == nil {
		t.Errorf("skiff down --purge leaves %v", entries)
	}
	if left := attached(volumes); len(left) > 0 {
		t.Errorf("skiff down --purge leaves loop devices of %v", left)
	}
}

// reboot leaves of the cluster what a machine that was started anew finds: its data.
func (c *cluster) reboot(t *testing.T) {
	t.Helper()
	c.killAll(t)
	id := filepath.Base(c.group())
	under := filepath.Join("/run/skiff", id+".net")
	link, err := netlink.LinkByName("skiff-" + id)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err := errors.Join(err, unix.Unmount(under, unix.MNT_DETACH), os.RemoveAll("/run/skiff")); err != nil {
		t.Fatal(err)
	}
	rules, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	rules.FlushRuleset()
	if err := rules.Flush(); err != nil {
		t.Fatal(err)
	}
}

// same checks that pods are still the same ones, and whether their containers are.
func (c *cluster) same(t *testing.T, before, after map[string]*corev1.Pod, containers bool) {
	t.Helper()
	for node, pod := range before {
		now := after[node]
		if now == nil || now.UID != pod.UID {
			t.Errorf("the pod on %s is another one", node)
			continue
		}
		was, is := pod.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID
		if containers && was != is {
			t.Errorf("the container on %s was started again", node)
		}
		if now.Status.HostIP != pod.Status.HostIP {
			t.Errorf("node %s has address %s, and had %s", node, now.Status.HostIP, pod.Status.HostIP)
		}
	}
}

// kubectl runs kubectl.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"kubectl", "--kubeconfig", filepath.Join(c.dir, "admin.kubeconfig")}, args...)
	code, out, errs := program.Run(t, c.home, args...)
	if code != 0 {
		t.Errorf("skiff %s: exit code %d\n%s", strings.Join(args, " "), code, errs)
	}
	return out
}

// inside runs a program in a node, as a person would look.
func (c *cluster) inside(t *testing.T, node string, command ...string) string {
	t.Helper()
	args := append([]string{"-a", "-t", fmt.Sprint(c.states(t)[node].InitPID)}, command...)
	var out, errs bytes.Buffer
	cmd := exec.Command("nsenter", args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Errorf("%v in %s: %v\n%s", command, node, err, errs.String())
	}
	return strings.TrimSpace(out.String())
}

// checkMachines checks that each node is a machine of its own.
func (c *cluster) checkMachines(t *testing.T, nodes map[string]*corev1.Node) {
	seen := map[string]string{}
	for name, n := range nodes {
		info := n.Status.NodeInfo
		for what, value := range map[string]string{"machine id": info.MachineID, "boot id": info.BootID, "system uuid": info.SystemUUID, "address": n.Status.Addresses[0].Address, "range of pods": n.Spec.PodCIDR} {
			if other := seen[what+value]; other != "" || value == "" {
				t.Errorf("the %s of %s is %q, that of %s too", what, name, value, other)
			}
			seen[what+value] = name
		}
		if got := c.inside(t, name, "hostname"); got != name {
			t.Errorf("%s is called %s inside", name, got)
		}
		for _, path := range []string{"/var/lib/kubelet/pods", "/var/log/pods", "/etc/cni/net.d", "/opt/cni/bin", "/run/containerd/containerd.sock", "/dev/null", "/dev/net/tun", "/dev/fuse", "/dev/loop-control", "/dev/loop0", "/etc/alternatives", "/dev/kmsg", "/dev/pts/ptmx"} {
			c.inside(t, name, "test", "-e", path)
		}
		for line := range strings.Lines(c.inside(t, name, "cat", "/proc/self/mountinfo")) {
			if at := strings.Fields(line)[4]; strings.HasPrefix(at, "/tmp") {
				t.Errorf("%s has a mount of this machine: %s", name, line)
			}
		}
		if code := c.inside(t, name, "sh", "-c", "touch /usr/x 2>/dev/null && echo written || true"); code != "" {
			t.Errorf("/usr of %s can be written to", name)
		}
		if rss := residentKB(t, c.states(t)[name].InitPID); rss > 1500 {
			t.Errorf("the first process of %s takes %d kB", name, rss)
		}
	}
}

func residentKB(t *testing.T, pid int) (kb int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(data)) {
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb
		}
	}
	t.Errorf("process %d does not say how much memory it takes", pid)
	return 0
}

// partition cuts a node off and connects it again.
func (c *cluster) partition(t *testing.T) {
	const kubelet = ":10250"
	states := c.states(t)
	reaches := func(from, to string) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		conn, err := local.Dial(ctx, c.dir, from, "tcp", states[to].Address.String()+kubelet)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	if !reaches("ship-3", "ship-2") || !reaches("ship-2", "ship-1") {
		t.Fatal("nodes do not reach each other")
	}
	if out := c.skiff(t, "node", "partition", "ship-2"); !strings.Contains(out, "node ship-2 is cut off from all other nodes") {
		t.Errorf("skiff says %q", out)
	}
	if out := c.skiff(t, "node", "list"); !strings.Contains(out, "on, cut off") {
		t.Errorf("skiff node list says:\n%s", out)
	}
	for _, pair := range [][2]string{{"ship-3", "ship-2"}, {"ship-2", "ship-3"}, {"ship-1", "ship-2"}, {"ship-2", "ship-1"}} {
		if reaches(pair[0], pair[1]) {
			t.Errorf("%s reaches %s", pair[0], pair[1])
		}
	}
	if !reaches("ship-1", "ship-3") {
		t.Error("other nodes do not reach each other any more")
	}
	conn, err := net.DialTimeout("tcp", states["ship-2"].Address.String()+kubelet, 5*time.Second)
	if err != nil {
		t.Errorf("this machine does not reach the node: %v", err)
	} else {
		conn.Close()
	}
	began := time.Now()
	c.ready(t, "ship-2", false)
	t.Logf("it is not Ready after %.1f s", time.Since(began).Seconds())
	c.ready(t, "ship-3", true)
	c.skiff(t, "node", "heal", "ship-2")
	began = time.Now()
	c.ready(t, "ship-2", true)
	t.Logf("it is Ready again after %.1f s", time.Since(began).Seconds())
	if s := c.states(t)["ship-2"]; s.Partitioned {
		t.Errorf("it is %+v", s)
	}
}
