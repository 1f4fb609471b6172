package local

import (
	"flag"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skiff/test/program"
	"skiff/test/seed"
	"skiff/test/traces"
)

var rounds = flag.Int("rounds", 3, "how often skiff up is killed")

// TestBeside has two clusters on one machine, neither of which was told where to be.
func TestBeside(t *testing.T) {
	a, b := newCluster(t, "port"), newCluster(t, "starboard")
	var both sync.WaitGroup // at once, and neither is told where to be
	start := func(c *cluster, args ...string) {
		if code, out, errs := c.try(t, append([]string{"up", "--nodes", "1", "--name", c.name}, args...)...); code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", c.name, code, out, errs)
		}
	}
	both.Go(func() { start(a) })
	both.Go(func() { start(b, "--node-memory", "512Mi", "--node-labels", "side=right,deck=lower") })
	both.Wait()
	if t.Failed() {
		t.FailNow()
	}
	a.connect(t)
	b.connect(t)
	one, other := a.states(t)["port-1"], b.states(t)["starboard-1"]
	if one.Address == other.Address {
		t.Errorf("both have address %s", one.Address)
	}
	n := b.ready(t, "starboard-1", true)
	if got := n.Status.Capacity.Memory().Value(); got != 512<<20 {
		t.Errorf("a node with 512Mi says that it has %d bytes", got)
	}
	if n.Labels["side"] != "right" || n.Labels["deck"] != "lower" {
		t.Errorf("its labels are %v", n.Labels)
	}
	b.skiff(t, "down")
	a.ready(t, "port-1", true)
	a.skiff(t, "node", "stop", "port-1")
	a.skiff(t, "node", "start", "port-1")
	a.ready(t, "port-1", true)
	b.up(t)
	if got := b.states(t)["starboard-1"].Address; got != other.Address {
		t.Errorf("its address was %s and is %s", other.Address, got)
	}
	a.skiff(t, "down")
	b.skiff(t, "down")
}

// TestKilledUp kills `skiff up` and `skiff down` at any moment. The next one goes on from there.
func TestKilledUp(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	c := newCluster(t, "wreck")
	skiff := program.Path(t)
	for round := range *rounds {
		command := []string{"up", "--nodes", "2", "--name", c.name}
		if round%2 == 1 {
			command = []string{"down"}
		}
		cmd := exec.Command(skiff, append(command, "--data-dir", c.dir)...)
		cmd.Env = []string{"HOME=" + c.home}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait := time.Duration(random.Int64N(int64(900 * time.Millisecond)))
		time.Sleep(wait) // when is what is tried
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Logf("round %d: skiff %s killed after %v", round, command[0], wait)
		switch random.IntN(3) {
		case 0:
			c.up(t, "--nodes", "2", "--name", c.name)
		case 1:
			if code, out, errs := c.try(t, "down"); code != 0 && !strings.Contains(errs, "no nodes of its own") {
				t.Fatalf("skiff down: exit code %d\n%s%s", code, out, errs)
			}
			traces.NothingLeft(t, "skiff down", c.before, c.group())
		case 2:
			for _, pid := range c.processes(t) { // some of what there is
				if random.IntN(2) == 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	}
	c.up(t, "--nodes", "2", "--name", c.name)
	for _, node := range []string{"wreck-1", "wreck-2"} {
		c.ready(t, node, true)
	}
}

// TestRefusals are commands that cannot be followed. They say why, and change nothing.
func TestRefusals(t *testing.T) {
	c := newCluster(t, "dock")
	refused := func(says string, args ...string) {
		t.Helper()
		code, out, errs := c.try(t, args...)
		if code == 0 || !strings.Contains(errs, says) {
			t.Errorf("skiff %s: exit code %d\n%s%s\nit should say %q", strings.Join(args, " "), code, out, errs, says)
		}
	}
	refused("there must be at least one", "up", "--nodes", "0")
	refused("1 to 100 nodes", "up", "--nodes", "101")
	refused("cannot be called", "up", "--nodes", "1", "--name", "Not_A_Name")
	refused("each has its own", "up", "--nodes", "1", "--node-ip", "192.0.2.1")
	refused("--node-memory", "up", "--nodes", "1", "--node-memory", "lots")
	refused("--node-memory", "up", "--nodes", "1", "--node-memory", "1Mi")
	refused("--scheduler-config", "up", "--nodes", "1", "--scheduler-config", filepath.Join(c.home, "none"))
	refused("has no nodes of its own", "node", "list")
	traces.NothingLeft(t, "what is refused", c.before, c.group())
	c.up(t, "--nodes", "1", "--name", c.name)
	refused("there is no node \"dock-2\"; there are dock-1", "node", "stop", "dock-2")
	refused("is called dock, not quay", "up", "--name", "quay")
	refused("that cannot be changed", "up", "--port", "1234")
	refused("1 to 100 nodes", "up", "--nodes", "101")
	c.up(t, "--nodes", "2")
	c.ready(t, "dock-2", true)
	refused("do not become 1", "up", "--nodes", "1")
	if out := c.skiff(t, "up"); !strings.Contains(out, "already up") {
		t.Errorf("a second skiff up says:\n%s", out)
	}
	c.skiff(t, "down")
	refused("cluster dock is down", "node", "partition", "dock-1")
	refused("but the server does not run", "node", "start", "dock-2")
	if out := c.skiff(t, "status"); !strings.Contains(out, "off") {
		t.Errorf("skiff status says:\n%s", out)
	}
}
