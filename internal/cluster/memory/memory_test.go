package memory

import "testing"

// TestPacer: GOGC rises while the process is busy and falls when it becomes idle, which is reported once.
func TestPacer(t *testing.T) {
	const live = busyGrowth / 2
	p := newPacer()
	allocated, becameIdle := uint64(0), 0
	pass := func(ticks int, each uint64) {
		for range ticks {
			allocated += each
			if p.observe(allocated, live) {
				becameIdle++
			}
		}
	}
	pass(10, 0)
	if !p.busy || p.gogc != 200 {
		t.Errorf("GOGC is %d at the start", p.gogc)
	}
	pass(100, 1<<10)
	if p.busy || p.gogc != idleGOGC || becameIdle != 1 {
		t.Errorf("idle, after becoming so %d times: GOGC is %d", becameIdle, p.gogc)
	}
	pass(500, busyBytes/8)
	if p.busy || becameIdle != 1 {
		t.Error("became busy by too few allocations")
	}
	pass(busyTicks, busyBytes/busyTicks)
	if !p.busy || p.gogc != 200 {
		t.Errorf("busy: GOGC is %d", p.gogc)
	}
	pass(10*idleTicks, idleBytes/idleTicks+1) // fewer allocations than before, but not few enough
	if !p.busy || becameIdle != 1 {
		t.Error("became idle with too many allocations")
	}
	pass(idleTicks+1, 0)
	if p.busy || p.gogc != idleGOGC || becameIdle != 2 {
		t.Errorf("idle again, after becoming so %d times: GOGC is %d", becameIdle, p.gogc)
	}
	pass(1000, 0)
	if becameIdle != 2 {
		t.Errorf("became idle %d times", becameIdle)
	}
}

// TestPacerLargeHeap: a process with a large heap becomes idle while it allocates what would keep a small one busy.
func TestPacerLargeHeap(t *testing.T) {
	p := newPacer()
	allocated := uint64(0)
	for range idleTicks + 1 {
		allocated += busyBytes
		if p.observe(allocated, 4<<30) {
			return
		}
	}
	t.Error("a process with a large heap never becomes idle")
}
