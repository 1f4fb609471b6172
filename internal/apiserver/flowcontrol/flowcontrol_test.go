package flowcontrol

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skiff/test/seed"
)

// TestDefaultSchemas checks that requests are assigned to the levels and flows of upstream's configuration.
func TestDefaultSchemas(t *testing.T) {
	c, err := New(Options{Seats: 600})
	if err != nil {
		t.Fatal(err)
	}
	account := []string{serviceAccounts, authenticated}
	known := []string{authenticated}
	for _, test := range []struct {
		name        string
		r           Request
		level, flow string
	}{
		{"the administrator", Request{User: "admin", Groups: []string{masters, authenticated}, Verb: "list", Resource: true, Plural: "pods"}, "exempt", ""},
		{"a probe", Request{User: "system:anonymous", Groups: []string{unauthenticated}, Verb: "get", Path: "/livez"}, "exempt", ""},
		{"a write to a probe's path", Request{User: "system:anonymous", Groups: []string{unauthenticated}, Verb: "post", Path: "/livez"}, "global-default", "system:anonymous"},
		{"the version", Request{User: "system:anonymous", Groups: []string{unauthenticated}, Verb: "get", Path: "/version"}, "global-default", "system:anonymous"},
		{"a scheduler's lease", Request{User: scheduler, Groups: known, Verb: "update", Resource: true, Group: "coordination.k8s.io", Plural: "leases", Namespace: kubeSystem}, "leader-election", scheduler},
		{"a node's lease", Request{User: "system:node:a", Groups: []string{nodes, authenticated}, Verb: "update", Resource: true, Group: "coordination.k8s.io", Plural: "leases", Namespace: "kube-node-lease"}, "node-high", "system:node:a"},
		{"a node's status", Request{User: "system:node:a", Groups: []string{nodes, authenticated}, Verb: "patch", Resource: true, Plural: "nodes", Subresource: "status"}, "node-high", "system:node:a"},
		{"a node's pods", Request{User: "system:node:a", Groups: []string{nodes, authenticated}, Verb: "list", Resource: true, Plural: "pods"}, "system", "system:node:a"},
		{"a controller", Request{User: controllerManager, Groups: known, Verb: "create", Resource: true, Plural: "pods", Namespace: "shop"}, "workload-high", "shop"},
		{"an account of the system", Request{User: "system:serviceaccount:kube-system:dns", Groups: account, Verb: "list", Resource: true, Plural: "pods"}, "workload-high", ""},
		{"an account of a namespace with a similar name", Request{User: "system:serviceaccount:kube-system2:dns", Groups: account, Verb: "list", Resource: true, Plural: "pods"}, "workload-low", "system:serviceaccount:kube-system2:dns"},
		{"an account", Request{User: "system:serviceaccount:shop:web", Groups: account, Verb: "get", Path: "/api/v1"}, "workload-low", "system:serviceaccount:shop:web"},
		{"a person", Request{User: "alice", Groups: known, Verb: "delete", Resource: true, Plural: "pods", Namespace: "shop"}, "global-default", "alice"},
		{"a user without groups", Request{User: "nobody", Verb: "get", Path: "/api"}, "catch-all", "nobody"},
	} {
		s := c.classify(&test.r)
		if flow := s.flow(&test.r).distinguisher; s.level.Name != test.level || flow != test.flow {
			t.Errorf("%s: level %s, flow %q; want %s, %q", test.name, s.level.Name, flow, test.level, test.flow)
		}
	}
}

func TestUnknownLevel(t *testing.T) {
	if _, err := New(Options{Seats: 1, Schemas: []Schema{{Name: "a", Level: "b"}}}); err == nil {
		t.Error("a schema without a level was accepted")
	}
}

func person(name string) *Request {
	return &Request{User: name, Groups: []string{authenticated}, Verb: "get", Path: "/api"}
}

// TestWaiting checks that a request waits no longer than MaxWait, and gets a seat that becomes free meanwhile.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{Seats: 1, MaxWait: 15 * time.Second, Levels: []Level{{Name: "catch-all", Shares: 1, QueueLength: 2}}, Schemas: []Schema{}})
		if err != nil {
			t.Fatal(err)
		}
		var first, second, third, fourth Seat
		if _, ok := c.Enter(t.Context(), &first, person("a")); !ok {
			t.Fatal("no seat at first")
		}
		if waited, ok := c.Enter(t.Context(), &second, person("a")); ok || waited != 15*time.Second {
			t.Errorf("waited %v, %v", waited, ok)
		}
		canceled, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if waited, ok := c.Enter(canceled, &second, person("a")); ok || waited != time.Second {
			t.Errorf("waited %v, %v", waited, ok)
		}
		time.AfterFunc(5*time.Second, first.Leave)
		if waited, ok := c.Enter(t.Context(), &third, person("a")); !ok || waited != 5*time.Second {
			t.Errorf("waited %v, %v", waited, ok)
		}
		third.Park()
		if waited, ok := c.Enter(t.Context(), &fourth, person("a")); !ok || waited != 0 {
			t.Errorf("the seat of a parked request: waited %v, %v", waited, ok)
		}
		time.AfterFunc(3*time.Second, fourth.Leave)
		if waited, ok := third.Resume(t.Context()); !ok || waited != 3*time.Second {
			t.Errorf("resumed after %v, %v", waited, ok)
		}
		third.Leave()
		third.Leave()
		if s := c.Stats(); s.ReadOnly != 0 || s.Waiting != 0 || s.Parked != 0 || s.Rejected != 2 || len(c.core.levels[0].flows) != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

// TestRandom checks after random operations that no more requests execute than there are seats, that flows keep to their thresholds, and that nothing leaks.
func TestRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	for range 200 {
		seats := 1 + random.IntN(60)
		c := newCore(seats, []Level{{Name: "a", Shares: 1 + random.IntN(5), LendablePercent: random.IntN(101), QueueLength: random.IntN(10)},
			{Name: "b", Shares: 1 + random.IntN(5), LendablePercent: random.IntN(101), QueueLength: random.IntN(10)}}, 5, 3)
		bound := seats
		for _, l := range c.levels {
			bound = max(bound, l.guaranteed+c.levels[0].guaranteed)
		}
		var executing, parked []*flow
		var waiting []*waiter
		take := func(ws []*waiter) {
			for _, w := range ws {
				executing = append(executing, w.flow)
			}
		}
		any := func(n int) int { return random.IntN(max(n, 1)) }
		remove := func(list []*flow, i int) []*flow { return append(list[:i:i], list[i+1:]...) }
		for step := range 600 {
			choice := random.IntN(8)
			switch {
			case choice < 4 && step < 500:
				f, w, v := c.arrive(c.levels[random.IntN(2)], flowKey{distinguisher: strconv.Itoa(random.IntN(4))}, func() *waiter { return &waiter{} })
				switch v {
				case execute:
					executing = append(executing, f)
				case wait:
					waiting = append(waiting, w)
				}
			case choice == 4 && len(waiting) > 0:
				if w := waiting[any(len(waiting))]; !w.granted {
					take(c.withdraw(w))
					w.granted = true // in this test: not to be withdrawn again
				}
			case choice == 5 && len(executing) > 0:
				i := any(len(executing))
				if ws, ok := c.park(executing[i]); ok {
					parked = append(parked, executing[i])
					executing = remove(executing, i)
					take(ws)
				}
			case choice == 6 && len(parked) > 0:
				i := any(len(parked))
				c.unpark(parked[i])
				parked = remove(parked, i)
			case len(executing) > 0:
				i := any(len(executing))
				f := executing[i]
				executing = remove(executing, i)
				take(c.leave(f))
			}
			check(t, c, len(executing), len(parked), bound)
			if t.Failed() {
				return
			}
		}
		for _, w := range waiting {
			if !w.granted {
				take(c.withdraw(w))
			}
		}
		for len(executing) > 0 {
			f := executing[0]
			executing = executing[1:]
			take(c.leave(f))
		}
		for _, f := range parked {
			c.unpark(f)
		}
		if c.queued != 0 || c.parked != 0 || len(c.levels[0].flows)+len(c.levels[1].flows) != 0 {
			t.Fatalf("left behind: %d queued, %d parked, flows %v %v", c.queued, c.parked, c.levels[0].flows, c.levels[1].flows)
		}
	}
}

// check compares the core's counts with the executing requests, and looks for a request that waits although it could execute.
func check(t *testing.T, c *core, executing, parked, bound int) {
	t.Helper()
	inUse, reserved, queued := 0, 0, 0
	for _, l := range c.levels {
		inUse += l.inUse
		reserved += max(l.guaranteed-l.inUse, 0)
		flows := 0
		for _, f := range l.flows {
			flows += f.inUse
			queued += len(f.queue)
			if len(f.queue) > 0 && c.mayTake(f) {
				t.Errorf("flow %s waits although it may take a seat", f.key.distinguisher)
			}
			if len(f.queue) > l.QueueLength {
				t.Errorf("%d requests wait in a queue of %d", len(f.queue), l.QueueLength)
			}
		}
		if flows != l.inUse {
			t.Errorf("level %s counts %d seats, its flows have %d", l.Name, l.inUse, flows)
		}
	}
	if inUse != executing || inUse != c.inUse || reserved != c.reserved || queued != c.queued || parked != c.parked || inUse > bound {
		t.Errorf("%d execute, %d parked, at most %d: %+v", executing, parked, bound, c)
	}
}

// TestConcurrent shares few seats among many goroutines, for the race detector.
func TestConcurrent(t *testing.T) {
	c, err := New(Options{Seats: 8, MaxWait: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for n := range 200 {
				var s Seat
				if _, ok := c.Enter(t.Context(), &s, person(strconv.Itoa(i%5))); !ok {
					t.Error("rejected")
					return
				}
				if n%3 == 0 {
					s.Park()
					if _, ok := s.Resume(t.Context()); !ok {
						t.Error("rejected")
					}
				}
				s.Leave()
			}
		})
	}
	wg.Wait()
	if s := c.Stats(); s.ReadOnly+s.Waiting+s.Parked != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// BenchmarkEnter measures Enter and Leave while there are free seats.
func BenchmarkEnter(b *testing.B) {
	for name, r := range map[string]*Request{
		"exempt":  {User: "admin", Groups: []string{masters, authenticated}, Verb: "get", Resource: true, Plural: "pods", Namespace: "default"},
		"account": {User: "system:serviceaccount:shop:web", Groups: []string{serviceAccounts, serviceAccounts + ":shop", authenticated}, Verb: "get", Resource: true, Plural: "pods", Namespace: "default"},
		"person":  {User: "alice", Groups: []string{authenticated}, Verb: "get", Resource: true, Plural: "pods", Namespace: "default"},
	} {
		b.Run(name, func(b *testing.B) {
			c, err := New(Options{Seats: 600})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				var s Seat
				c.Enter(context.Background(), &s, r)
				s.Leave()
			}
		})
	}
}
