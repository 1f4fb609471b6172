package usage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// nodes is a set of nodes, each with a pod of two containers that use 250 thousandths of a core and 1 MiB each.
type nodes struct {
	t     *testing.T
	clock *testingclock.FakeClock
	began time.Time
	meter *Meter

	mu      sync.Mutex
	asked   int
	fails   bool
	started map[string]time.Time // when containers were started; an hour ago if they are not here
	gone    map[string]bool      // containers that do not run
}

func newNodes(t *testing.T) *nodes {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	n := &nodes{t: t, clock: testingclock.NewFakeClock(began.Add(time.Hour)), began: began, started: map[string]time.Time{}, gone: map[string]bool{}}
	n.meter = New(Options{Read: n.read, Clock: n.clock})
	return n
}

func (n *nodes) read(context.Context, string) (*Reading, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if n.fails {
		return nil, errors.New("away")
	}
	now := n.clock.Now()
	count := func(started time.Time, cores float64) Count {
		return Count{At: now, Started: started, CPU: time.Duration(cores * float64(now.Sub(started))), Memory: 1 << 20}
	}
	r := &Reading{Node: count(n.began, 1)}
	for _, name := range []string{"a", "b"} {
		started, ok := n.started[name]
		if !ok {
			started = n.began
		}
		if !n.gone[name] {
			r.Containers = append(r.Containers, ContainerCount{"default", "p", name, count(started, 0.25)})
		}
	}
	return r, nil
}

// measure asks for the metrics of a node, and lets the time pass that the meter waits for.
func (n *nodes) measure() string {
	n.t.Helper()
	type result struct {
		all map[string]*NodeMetrics
		err error
	}
	answered := make(chan result)
	go func() {
		all, err := n.meter.Measure(n.t.Context(), []string{"n"})
		answered <- result{all, err}
	}()
	for {
		select {
		case r := <-answered:
			if r.err != nil {
				n.t.Fatal(r.err)
			}
			return shown(r.all["n"])
		case <-time.After(time.Millisecond):
			if n.clock.HasWaiters() {
				n.clock.Step(firstWindow)
			}
		}
	}
}

func shown(m *NodeMetrics) string {
	if m == nil {
		return "nothing"
	}
	var out strings.Builder
	show := func(name string, m Metrics) { fmt.Fprintf(&out, "%s %dm %s; ", name, m.CPU/1_000_000, m.Window) }
	if m.Node != nil {
		show("node", *m.Node)
	}
	for pod, containers := range m.Pods {
		for _, c := range containers {
			show(pod.Name+"/"+c.Name, c.Metrics)
		}
	}
	return strings.TrimSuffix(out.String(), "; ")
}

func (n *nodes) expect(want string, asked int) {
	n.t.Helper()
	if got := n.measure(); got != want || n.asked != asked {
		n.t.Errorf("got  %s, asked %d times\nwant %s, asked %d times", got, n.asked, want, asked)
	}
}

func TestMeter(t *testing.T) {
	n := newNodes(t)
	n.expect("node 1000m 1.5s; p/a 250m 1.5s; p/b 250m 1.5s", 2) // two counts for the first who asks
	n.clock.Step(10 * time.Second)
	n.expect("node 1000m 1.5s; p/a 250m 1.5s; p/b 250m 1.5s", 2) // no older than the resolution
	n.clock.Step(10 * time.Second)
	n.expect("node 1000m 20s; p/a 250m 20s; p/b 250m 20s", 3)

	// A container that has just been started has no rate, and its pod no metrics.
	n.started["b"] = n.clock.Now().Add(14 * time.Second)
	n.clock.Step(15 * time.Second)
	n.expect("node 1000m 15s", 4)
	n.clock.Step(15 * time.Second)
	n.expect("node 1000m 15s; p/a 250m 15s; p/b 250m 15s", 5)

	// One that was started between two counts, long enough ago, is measured since then.
	n.started["b"] = n.clock.Now().Add(2 * time.Second)
	n.clock.Step(20 * time.Second)
	n.expect("node 1000m 20s; p/a 250m 20s; p/b 250m 18s", 6)
	n.gone["b"] = true
	n.clock.Step(20 * time.Second)
	n.expect("node 1000m 20s; p/a 250m 20s", 7)

	// A node that does not answer has no metrics, and is not asked by everybody.
	n.fails = true
	n.clock.Step(20 * time.Second)
	n.expect("nothing", 8)
	n.expect("nothing", 8)
	n.fails = false
	n.clock.Step(20 * time.Second)
	n.expect("node 1000m 1.5s; p/a 250m 1.5s", 10)
}

// Nothing is asked or kept of what nobody asks for.
func TestIdle(t *testing.T) {
	n := newNodes(t)
	n.measure()
	asked := n.asked
	n.meter.drop()
	n.meter.drop()
	if n.asked != asked || len(n.meter.nodes) != 0 || n.meter.dropping || n.clock.HasWaiters() {
		t.Errorf("asked %d times, %d nodes are kept", n.asked-asked, len(n.meter.nodes))
	}
}

// Those who ask at once wait for one answer.
func TestTogether(t *testing.T) {
	answer := make(chan struct{})
	var asked int
	m := New(Options{Read: func(context.Context, string) (*Reading, error) {
		<-answer
		asked++
		rate := uint64(1)
		return &Reading{Node: Count{At: time.Now(), Rate: &rate}}, nil
	}})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if all, err := m.Measure(t.Context(), []string{"n"}); err != nil || all["n"] == nil {
				t.Errorf("%v %v", all, err)
			}
		})
	}
	close(answer)
	wg.Wait()
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Measure(ctx, []string{"n"}); err == nil {
		t.Error("a request that has ended got an answer")
	}
}

func FuzzReadSummary(f *testing.F) {
	f.Add(`{"node":{"cpu":{"time":"2026-01-01T00:00:00Z","usageCoreNanoSeconds":1},"memory":{"workingSetBytes":2}},"pods":[{"podRef":{"name":"p","namespace":"d"},"containers":[{"name":"c"}]}]}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ReadSummary(strings.NewReader(text)); err == nil {
			metricsOf(r, r)
			metricsOf(nil, r)
		}
	})
}
