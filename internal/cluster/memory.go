package cluster

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// A process at rest is to be small, and one with much to do is to be quick. So while little is allocated the garbage collector runs whenever the heap
// has grown by half. When that makes it run all the time, the heap may grow by more, which costs memory and saves a fifth of the processor's time;
// and once there is little to do again, the memory is given back.
const (
	frugalGrowth = 50       // percent
	busyGrowth   = 64 << 20 // bytes that the heap may grow by at least while there is much to do
	memoryTick   = 250 * time.Millisecond
	busyTicks    = 4  // with so many collections as make it busy, within so many ticks
	busyCycles   = 3  // …
	restTicks    = 20 // without a collection, or with one: there is little to do
)

// TendMemory watches over how much memory this process takes. What it returns ends that.
func TendMemory() (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { tendMemory(done) })
	return func() {
		close(done)
		running.Wait()
	}
}

func tendMemory(done <-chan struct{}) {
	samples := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	effort := newEffort()
	debug.SetGCPercent(effort.growth)
	tick := time.NewTicker(memoryTick)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		metrics.Read(samples)
		before := effort.growth
		rests := effort.observe(samples[0].Value.Uint64(), samples[1].Value.Uint64())
		if effort.growth != before {
			debug.SetGCPercent(effort.growth)
		}
		if rests {
			debug.FreeOSMemory() // heap
			unmapProgram()       // pages of the program that only starting needed, or what there was to do
			metrics.Read(samples[:1])
			effort.forget(samples[0].Value.Uint64())
		}
	}
}

// effort says how much the heap may grow before it is collected.
type effort struct {
	growth int      // percent
	busy   bool     // starting is
	past   []uint64 // how many collections there had been, at each of the last ticks
}

func newEffort() *effort { return &effort{growth: 4 * frugalGrowth, busy: true} }

// observe takes in how many collections there have been so far and how much the last one left. It says whether there is no longer much to do, once.
func (e *effort) observe(cycles, live uint64) (rests bool) {
	e.past = append(e.past, cycles)
	if len(e.past) > restTicks+1 {
		e.past = e.past[1:]
	}
	within := func(ticks int) uint64 { return cycles - e.past[max(0, len(e.past)-1-ticks)] }
	switch {
	case within(busyTicks) >= busyCycles:
		e.busy = true
	case e.busy && len(e.past) > restTicks && within(restTicks) <= 1:
		e.busy, e.growth = false, frugalGrowth
		return true
	}
	if !e.busy {
		return false
	}
	if live > 0 {
		want := max(frugalGrowth, int(100*busyGrowth/live))
		if want > e.growth*5/4 || want < e.growth*3/4 { // setting it stops the world for a moment
			e.growth = want
		}
	}
	return false
}

// forget begins anew, after a collection that was asked for.
func (e *effort) forget(cycles uint64) { e.past = append(e.past[:0], cycles) }
