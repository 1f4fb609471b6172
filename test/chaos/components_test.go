//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skiff/test/program"
)

// The leader election flags of the components: leases as short as allowed.
var election = []string{"--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=900ms", "--leader-elect-retry-period=50ms"}

// instance is one of several processes of a component; one of them is the leader.
type instance struct {
	*process
	component string
	args      []string
	began     int // how much was said before it was started last
}

func newInstance(t *testing.T, s *server, component string, number int) *instance {
	t.Helper()
	i := &instance{process: newProcess(t, fmt.Sprint(component, "-", number)), component: component}
	i.args = append([]string{program.Path(t), component, "--kubeconfig", filepath.Join(s.data, component+".kubeconfig")}, election...)
	return i
}

func (i *instance) start() {
	i.t.Helper()
	i.began = len(i.output())
	i.process.start(i.args...)
}

// outputSinceStart returns the output since the last start.
func (i *instance) outputSinceStart() string { return i.output()[i.began:] }

// leads reports whether the instance became the leader since it was started.
func (i *instance) leads() bool { return strings.Contains(i.outputSinceStart(), "me=true") }

// lostLead reports whether the instance has logged that it is no longer the leader: because of its lease, or of a request that it held back for that reason.
func (i *instance) lostLead() bool {
	said := i.outputSinceStart()
	return strings.Contains(said, "leaderelection lost") || strings.Contains(said, "another instance may be leading by now")
}

// revive restarts a process that has exited by itself, which is allowed only after it failed to renew its lease.
func (i *instance) revive() bool {
	i.t.Helper()
	ended, said := i.hasEnded(), i.outputSinceStart()
	if strings.Contains(said, "panic") || strings.Contains(said, "DATA RACE") || ended && !i.lostLead() {
		i.t.Fatalf("%s:\n%s", i.component, said)
	}
	if ended {
		i.start()
	}
	return ended
}

// componentSet is the instances of all components.
type componentSet struct {
	t         *testing.T
	random    *rand.Rand
	instances []*instance

	kills, ofLeaders, stops, gaveUp int
}

func newComponentSet(t *testing.T, s *server, random *rand.Rand) *componentSet {
	t.Helper()
	c := &componentSet{t: t, random: random}
	for _, component := range []string{"controller-manager", "scheduler"} {
		for number := range 2 {
			i := newInstance(t, s, component, number)
			i.start()
			c.instances = append(c.instances, i)
		}
	}
	return c
}

// kill kills an instance, mostly a leader, and starts it again after a while.
func (c *componentSet) kill() {
	c.t.Helper()
	var victims []*instance
	for _, i := range c.instances {
		if i.leads() {
			victims = append(victims, i)
		}
	}
	if len(victims) == 0 || c.random.IntN(3) == 0 {
		victims = c.instances
	}
	victim := victims[c.random.IntN(len(victims))]
	if victim.hasEnded() {
		c.reviveAll()
		return
	}
	if c.random.IntN(4) == 0 && victim.outputSinceStart() != "" { // one that has not come to say anything cannot be asked either
		c.stops++
		victim.stop() // now and then one may finish what it does, and the next one begins at once
	} else {
		c.kills++
		if victim.leads() {
			c.ofLeaders++
		}
		victim.kill()
	}
	time.Sleep(time.Duration(c.random.IntN(50)) * time.Millisecond)
	victim.start()
	c.reviveAll()
}

// awaitLeaders waits, in bounded time, until each component has a leader.
func (c *componentSet) awaitLeaders() {
	c.t.Helper()
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		leaders := map[string]bool{}
		for _, i := range c.instances {
			if i.leads() {
				leaders[i.component] = true
			}
		}
		if len(leaders) == 2 {
			return
		}
		c.reviveAll()
	}
}

// reviveAll restarts the instances that have exited by themselves.
func (c *componentSet) reviveAll() {
	c.t.Helper()
	for _, i := range c.instances {
		if i.revive() {
			c.gaveUp++
		}
	}
}

// tails returns the last output of all instances and the goroutine stacks of the leaders, which ends them.
func (c *componentSet) tails() string {
	var b strings.Builder
	for _, i := range c.instances {
		fmt.Fprintf(&b, "--- %s, leads: %v\n%s\n", filepath.Base(i.log.Name()), i.leads(), i.tail())
	}
	for _, i := range c.instances {
		if i.leads() && !i.hasEnded() {
			fmt.Fprintf(&b, "--- %s:\n%s\n", filepath.Base(i.log.Name()), i.stacks())
		}
	}
	return b.String()
}

// stacks ends a process and returns the stacks of its goroutines in skiff's own code.
func (i *instance) stacks() string {
	before := len(i.output())
	i.signal(syscall.SIGQUIT)
	select {
	case <-i.ended:
	case <-time.After(10 * time.Second):
	}
	var ours []string
	for stack := range strings.SplitSeq(i.output()[before:], "\n\n") {
		if strings.Contains(stack, "skiff/internal/") {
			ours = append(ours, stack)
		}
	}
	return strings.Join(ours, "\n\n")
}
