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

// How leaders are elected here: with leases as short as they may be.
var election = []string{"--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=900ms", "--leader-elect-retry-period=50ms"}

// instance is a component in a process of its own, of which there are several; one of them leads.
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
	i.began = len(i.said())
	i.process.start(i.args...)
}

// lately returns what was said since the last start.
func (i *instance) lately() string { return i.said()[i.began:] }

// leads reports whether this one took the lead since it was started.
func (i *instance) leads() bool { return strings.Contains(i.lately(), "me=true") }

// lostLead reports whether this one knows that it leads no longer: by its lease, or by a request that was held back at its start because of that.
func (i *instance) lostLead() bool {
	said := i.lately()
	return strings.Contains(said, "leaderelection lost") || strings.Contains(said, "another instance may be leading by now")
}

// revive starts a process again that has ended by itself, as it must when it could not renew its lease in time, and only then.
func (i *instance) revive() bool {
	i.t.Helper()
	ended, said := i.hasEnded(), i.lately()
	if strings.Contains(said, "panic") || strings.Contains(said, "DATA RACE") || ended && !i.lostLead() {
		i.t.Fatalf("%s:\n%s", i.component, said)
	}
	if ended {
		i.start()
	}
	return ended
}

// crew is the instances of all components.
type crew struct {
	t         *testing.T
	random    *rand.Rand
	instances []*instance

	kills, ofLeaders, stops, gaveUp int
}

func newCrew(t *testing.T, s *server, random *rand.Rand) *crew {
	t.Helper()
	c := &crew{t: t, random: random}
	for _, component := range []string{"controller-manager", "scheduler"} {
		for number := range 2 {
			i := newInstance(t, s, component, number)
			i.start()
			c.instances = append(c.instances, i)
		}
	}
	return c
}

// kill kills one of them, more often than not one that leads, and starts it again after a while.
func (c *crew) kill() {
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
		c.look()
		return
	}
	if c.random.IntN(4) == 0 && victim.lately() != "" { // one that has not come to say anything cannot be asked either
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
	c.look()
}

// awaitLeaders waits until of each component one leads, but not for long.
func (c *crew) awaitLeaders() {
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
		c.look()
	}
}

// look starts those again that have ended by themselves.
func (c *crew) look() {
	c.t.Helper()
	for _, i := range c.instances {
		if i.revive() {
			c.gaveUp++
		}
	}
}

// tails returns what all said last, and what those who lead are doing, which ends them.
func (c *crew) tails() string {
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

// stacks ends a process and returns what those of its goroutines did that are not everybody's.
func (i *instance) stacks() string {
	before := len(i.said())
	i.signal(syscall.SIGQUIT)
	select {
	case <-i.ended:
	case <-time.After(10 * time.Second):
	}
	var ours []string
	for stack := range strings.SplitSeq(i.said()[before:], "\n\n") {
		if strings.Contains(stack, "skiff/internal/") {
			ours = append(ours, stack)
		}
	}
	return strings.Join(ours, "\n\n")
}
