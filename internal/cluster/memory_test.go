package cluster

import "testing"

// TestEffort: the heap may grow while there is much to do, and no longer when that ends, which is said once.
func TestEffort(t *testing.T) {
	const live = busyGrowth / 2
	e := newEffort()
	allocated, rested := uint64(0), 0
	pass := func(ticks int, each uint64) {
		for range ticks {
			allocated += each
			if e.observe(allocated, live) {
				rested++
			}
		}
	}
	pass(10, 0)
	if !e.busy || e.growth != 200 {
		t.Errorf("at the start the heap may grow by %d %%", e.growth)
	}
	pass(100, 1<<10)
	if e.busy || e.growth != frugalGrowth || rested != 1 {
		t.Errorf("at rest, after %d times of giving memory back, it may grow by %d %%", rested, e.growth)
	}
	pass(500, busyBytes/8) // a little to do
	if e.busy || rested != 1 {
		t.Error("a little to do is taken for much")
	}
	pass(busyTicks, busyBytes/busyTicks)
	if !e.busy || e.growth != 200 {
		t.Errorf("under load it may grow by %d %%", e.growth)
	}
	pass(10*restTicks, restBytes/restTicks+1) // less than before, but not little
	if !e.busy || rested != 1 {
		t.Error("there is still something to do, and it is taken for rest")
	}
	pass(restTicks+1, 0)
	if e.busy || e.growth != frugalGrowth || rested != 2 {
		t.Errorf("at rest again, after %d times of giving memory back, it may grow by %d %%", rested, e.growth)
	}
	pass(1000, 0)
	if rested != 2 {
		t.Errorf("memory was given back %d times", rested)
	}
}

// Of a large heap much is more.
func TestEffortOfMany(t *testing.T) {
	e := newEffort()
	allocated := uint64(0)
	for range restTicks + 1 {
		allocated += busyBytes
		if e.observe(allocated, 4<<30) {
			return
		}
	}
	t.Error("a large process is never at rest")
}
