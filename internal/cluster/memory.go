package cluster

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// A process at rest is to be small, and one with much to do is to be quick. So while little is allocated the garbage collector runs whenever the heap
// has grown by half. As soon as much is, the heap may grow by more, which costs memory and saves a fifth of the processor's time; and once there is
// little to do again, the memory is given back. Little and much are so many bytes, or such a part of the heap if that is more.
const (
	frugalGrowth = 50       // percent
	busyGrowth   = 48 << 20 // bytes that the heap may grow by at least while there is much to do
	memoryTick   = 250 * time.Millisecond
	busyTicks    = 2       // within so many ticks
	busyBytes    = 8 << 20 // … much is allocated
	restTicks    = 20
	restBytes    = 16 << 20 // … little
	heapPart     = 4
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
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
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
		}
	}
}

// effort says how much the heap may grow before it is collected.
type effort struct {
	growth int      // percent
	busy   bool     // starting is
	past   []uint64 // how much had been allocated, at each of the last ticks
}

func newEffort() *effort { return &effort{growth: 4 * frugalGrowth, busy: true} }

// observe takes in how much has been allocated so far and how much the last collection left. It says whether there is no longer much to do, once.
func (e *effort) observe(allocated, live uint64) (rests bool) {
	e.past = append(e.past, allocated)
	if len(e.past) > restTicks+1 {
		e.past = e.past[1:]
	}
	within := func(ticks int) uint64 { return allocated - e.past[max(0, len(e.past)-1-ticks)] }
	switch {
	case within(busyTicks) >= max(busyBytes, live/heapPart):
		e.busy = true
	case e.busy && len(e.past) > restTicks && within(restTicks) < max(restBytes, live/heapPart):
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
