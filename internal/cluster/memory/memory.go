package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// While the process is idle, the garbage collector runs whenever the heap has grown by half (GOGC=50). While it is busy the heap may grow by more, which costs
// memory and saves a fifth of the processor's time. Once it becomes idle again, freed memory is returned to the kernel. The process becomes busy and idle at
// the numbers of allocated bytes below, or at a part of the heap if that is more.
const (
	idleGOGC     = 50       // percent
	startGOGC    = 200      // percent, until the first measurement of the heap
	busyGrowth   = 48 << 20 // bytes that the heap may at least grow by while busy
	tickPeriod   = 250 * time.Millisecond
	busyTicks    = 2 // ticks in which busyBytes must be allocated to become busy
	busyBytes    = 8 << 20
	idleTicks    = 20 // ticks in which less than idleBytes must be allocated to become idle
	idleBytes    = 16 << 20
	heapFraction = 4 // a quarter of the live heap counts instead of busyBytes or idleBytes if it is more
)

// Tune keeps the memory of this process in bounds by its load, until stop is called.
func Tune() (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { tune(done) })
	return func() {
		close(done)
		running.Wait()
	}
}

func tune(done <-chan struct{}) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	pacer := newPacer()
	debug.SetGCPercent(pacer.gogc)
	tick := time.NewTicker(tickPeriod)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		metrics.Read(samples)
		before := pacer.gogc
		becameIdle := pacer.observe(samples[0].Value.Uint64(), samples[1].Value.Uint64())
		if pacer.gogc != before {
			debug.SetGCPercent(pacer.gogc)
		}
		if becameIdle {
			release()
		}
	}
}

// TuneSmall keeps a process small that is busy only when it starts, such as a service proxy, until ctx ends. What the start took is returned soon after it.
func TuneSmall(ctx context.Context) {
	debug.SetGCPercent(idleGOGC)
	for wait := 3 * time.Second; ; wait = 10 * time.Minute {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			release()
		}
	}
}

// release returns freed heap and clean pages of the program to the kernel.
func release() {
	debug.FreeOSMemory()
	unmapProgram()
}

// pacer decides on GOGC from how much is allocated.
type pacer struct {
	gogc      int      // percent
	busy      bool     // true at the start, which is work
	allocated []uint64 // bytes allocated since the process started, at each of the last ticks
}

func newPacer() *pacer { return &pacer{gogc: startGOGC, busy: true} }

// observe takes the bytes allocated since the process started and the live heap after the last collection, once per tick. It reports whether the process
// became idle with this tick.
func (p *pacer) observe(allocated, live uint64) (becameIdle bool) {
	p.allocated = append(p.allocated, allocated)
	if len(p.allocated) > idleTicks+1 {
		p.allocated = p.allocated[1:]
	}
	within := func(ticks int) uint64 { return allocated - p.allocated[max(0, len(p.allocated)-1-ticks)] }
	switch {
	case within(busyTicks) >= max(busyBytes, live/heapFraction):
		p.busy = true
	case p.busy && len(p.allocated) > idleTicks && within(idleTicks) < max(idleBytes, live/heapFraction):
		p.busy, p.gogc = false, idleGOGC
		return true
	}
	if !p.busy {
		return false
	}
	if live > 0 {
		want := max(idleGOGC, int(100*busyGrowth/live))
		if want > p.gogc*5/4 || want < p.gogc*3/4 { // small changes are not worth it: setting GOGC stops the world
			p.gogc = want
		}
	}
	return false
}
