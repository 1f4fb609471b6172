package flowcontrol

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skiff/test/seed"
)

// person returns a seat for a request of somebody.
func person(name string) *Seat {
	return &Seat{Request: Request{User: name, Verb: "get", Path: "/api"}}
}

// single returns a controller with one level, which is not exempt.
func single(o Options, l Level) *Controller {
	c := New(o)
	l.Name, l.Shares = catchAll, 1
	c.Configure([]Level{l}, nil)
	return c
}

// TestWaiting checks that a request waits no longer than MaxWait, and gets a seat that becomes free meanwhile.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := single(Options{ReadOnly: 1, MaxWait: 15 * time.Second}, Level{Queues: 1, HandSize: 1, QueueLength: 2})
		first, second, third, fourth := person("a"), person("a"), person("a"), person("a")
		if _, ok := c.Enter(t.Context(), first); !ok {
			t.Fatal("no seat at first")
		}
		if waited, ok := c.Enter(t.Context(), second); ok || waited != 15*time.Second {
			t.Errorf("waited %v, %v", waited, ok)
		}
		canceled, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if waited, ok := c.Enter(canceled, second); ok || waited != time.Second {
			t.Errorf("waited %v, %v", waited, ok)
		}
		time.AfterFunc(5*time.Second, first.Leave)
		if waited, ok := c.Enter(t.Context(), third); !ok || waited != 5*time.Second {
			t.Errorf("waited %v, %v", waited, ok)
		}
		third.Park()
		if waited, ok := c.Enter(t.Context(), fourth); !ok || waited != 0 {
			t.Errorf("the seat of a parked request: waited %v, %v", waited, ok)
		}
		time.AfterFunc(3*time.Second, fourth.Leave)
		if waited, ok := third.Resume(t.Context()); !ok || waited != 3*time.Second {
			t.Errorf("resumed after %v, %v", waited, ok)
		}
		third.Leave()
		third.Leave()
		if s := c.Stats(); s.ReadOnly != 0 || s.WaitingReadOnly != 0 || s.Parked != 0 || s.Rejected != 2 || len(c.core.levels[0].flows) != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

// TestRandom checks after random operations that no more requests execute than there are seats, that flows keep to their thresholds, and that nothing leaks.
func TestRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	for range 200 {
		seats := 1 + random.IntN(60)
		exempt := 0
		c := newCore(seats, 5, 3, func() int { return exempt })
		randomLevel := func(name string) Level {
			l := Level{Name: name, Shares: 1 + random.IntN(5), LendablePercent: random.IntN(101), Queues: random.IntN(4), HandSize: 1 + random.IntN(3), QueueLength: 1 + random.IntN(10)}
			if random.IntN(2) == 0 {
				most := random.IntN(300)
				l.BorrowingLimitPercent = &most
			}
			return l
		}
		several := func(string) bool { return true }
		c.setLevels([]Level{randomLevel("a"), randomLevel("b")}, several)
		var executing, parked []held
		var waiting []*waiter
		take := func(ws []*waiter) {
			for _, w := range ws {
				executing = append(executing, held{w.flow, w.width})
			}
		}
		any := func(n int) int { return random.IntN(max(n, 1)) }
		remove := func(list []held, i int) []held { return append(list[:i:i], list[i+1:]...) }
		for step := range 600 {
			choice := random.IntN(9)
			switch {
			case choice < 4 && step < 500:
				l := c.levels[random.IntN(len(c.levels))]
				width := 1 + random.IntN(min(l.maxSeats(true), 5))
				f, w, v := c.arrive(l, flowKey{distinguisher: strconv.Itoa(random.IntN(4))}, width, false, func() *waiter { return &waiter{} })
				switch v {
				case execute:
					executing = append(executing, held{f, width})
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
				if ws, ok := c.park(executing[i].flow, executing[i].width); ok {
					parked = append(parked, executing[i])
					executing = remove(executing, i)
					take(ws)
				}
			case choice == 6 && len(parked) > 0:
				i := any(len(parked))
				take(c.unpark(parked[i].flow))
				parked = remove(parked, i)
			case choice == 7 && random.IntN(10) == 0:
				take(c.setLevels([]Level{randomLevel("a"), randomLevel(string(rune('b' + random.IntN(3))))}, several))
			case choice == 8:
				exempt = random.IntN(seats + 5)
				take(c.dispatch())
			case len(executing) > 0:
				i := any(len(executing))
				one := executing[i]
				executing = remove(executing, i)
				take(c.leave(one.flow, one.width))
			}
			check(t, c, executing, len(parked))
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
			one := executing[0]
			executing = executing[1:]
			take(c.leave(one.flow, one.width))
		}
		for _, one := range parked {
			take(c.unpark(one.flow))
		}
		if c.queued != 0 || c.parked != 0 || c.inUse != 0 || len(c.levels) != 2 || len(c.levels[0].flows)+len(c.levels[1].flows) != 0 {
			t.Fatalf("left behind: %d queued, %d parked, %d seats, levels %v", c.queued, c.parked, c.inUse, c.levels)
		}
	}
}

// held are the seats of a request.
type held struct {
	flow  *flow
	width int
}

// check compares the core's counts with the executing requests, and looks for a request that waits although it could execute.
func check(t *testing.T, c *core, executing []held, parked int) {
	t.Helper()
	inUse, reserved, queued, seats := 0, 0, 0, 0
	for _, one := range executing {
		seats += one.width
	}
	for _, l := range c.levels {
		inUse += l.inUse
		reserved += max(l.lower-l.inUse, 0)
		flows, free := 0, c.free(l)
		waits := 0
		for _, f := range l.flows {
			flows += f.inUse
			queued += len(f.queue)
			waits += len(f.queue)
			if len(f.queue) > 0 && !l.held && l.fits(f.queue[0].width, free) && c.mayHold(f, f.queue[0].width, free) {
				t.Errorf("flow %s waits although it may take seats", f.key.distinguisher)
			}
		}
		if flows != l.inUse || waits != l.queued || l.waiting.size > waits {
			t.Errorf("level %s counts %d seats and %d waiting, its flows have %d and %d", l.Name, l.inUse, l.queued, flows, waits)
		}
		if l.lower > l.nominal || l.nominal > l.upper || free > max(l.upper-l.inUse, 0) {
			t.Errorf("level %s has %+v, %d in use and %d free", l.Name, l.limits, l.inUse, free)
		}
	}
	if inUse != seats || inUse != c.inUse || reserved != c.reserved || queued != c.queued || parked != c.parked {
		t.Errorf("%d seats are in use, %d parked: %+v", seats, parked, c)
	}
}

// TestConcurrent shares few seats among many goroutines, for the race detector.
func TestConcurrent(t *testing.T) {
	c := single(Options{ReadOnly: 8, MaxWait: 10 * time.Second}, Level{Queues: 4, HandSize: 2, QueueLength: 50})
	stop := make(chan struct{})
	var configuring sync.WaitGroup
	configuring.Go(func() { // configurations come and go meanwhile
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			levels := []Level{{Name: catchAll, Shares: 1 + i%3, Queues: 4, HandSize: 2, QueueLength: 50}, {Name: "exempt", Exempt: true}}
			schemas := []Schema{{Name: "exempt", Level: "exempt", Rules: []Rule{{Subjects: []Subject{{Group: masters}}, Paths: []PathRule{{Verbs: []string{All}, Paths: []string{All}}}}}}}
			if i%2 == 0 {
				levels = append(levels, Level{Name: "other", Shares: 1, Queues: 1, HandSize: 1, QueueLength: 200})
				schemas = append(schemas, Schema{Name: "other", Level: "other", Precedence: 5, Rules: []Rule{{Subjects: []Subject{{User: "3"}}, Paths: []PathRule{{Verbs: []string{All}, Paths: []string{All}}}}}})
			}
			c.Configure(levels, schemas)
			var dump strings.Builder
			for _, table := range []string{"dump_priority_levels", "dump_queues", "dump_requests"} {
				if !c.Dump(&dump, table, true) {
					t.Error("there is no", table)
				}
			}
		}
	})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for n := range 200 {
				s := person(strconv.Itoa(i % 5))
				if _, ok := c.Enter(t.Context(), s); !ok {
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
	close(stop)
	configuring.Wait()
	if s := c.Stats(); s.ReadOnly+s.WaitingReadOnly+s.Parked != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// TestStalledRejections: clients that do not wait when they are told to are made to.
func TestStalledRejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := single(Options{ReadOnly: 1, MaxWait: 15 * time.Second}, Level{})
		first := person("a")
		c.Enter(t.Context(), first)
		began := time.Now()
		for i := range promptRejections + 1 {
			s := person("a")
			if _, ok := c.Enter(t.Context(), s); ok {
				t.Fatal("there is a second seat")
			}
			s.Stall(t.Context())
			if took, want := time.Since(began), i == promptRejections; (took >= stallTime) != want {
				t.Fatalf("rejection %d took %v", i, took)
			}
			s.Leave()
		}
		if c.stalled != 0 {
			t.Errorf("%d requests are held back", c.stalled)
		}
	})
}

// TestFinalSeats: a write keeps its seats for a while after it has ended, as many for as long as the level allows.
func TestFinalSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := single(Options{ReadOnly: 40, MaxWait: 15 * time.Second, Estimate: func(r *Request) Work {
			if r.Mutating {
				return Work{FinalSeats: 20, AdditionalLatency: time.Second}
			}
			return Work{}
		}}, Level{Queues: 1, HandSize: 1, QueueLength: 2})
		inUse := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.core.inUse
		}
		write := person("a")
		write.Request.Mutating = true
		c.Enter(t.Context(), write)
		const most = 6 // 15 % of the level
		if write.width != most || write.work.AdditionalLatency != 20*time.Second/most {
			t.Errorf("the write has %d seats for %v more", write.width, write.work.AdditionalLatency)
		}
		write.Leave()
		if s := c.Stats(); s.Mutating != 0 || inUse() != most {
			t.Errorf("after the write: %+v, %d seats in use", s, inUse())
		}
		time.Sleep(20*time.Second/most + time.Millisecond)
		synctest.Wait()
		if n := inUse(); n != 0 {
			t.Errorf("later: %d seats in use", n)
		}
	})
}
