package cluster

import "testing"

// TestEffort: the heap may grow while there is much to do, and no longer when that ends, which is said once.
func TestEffort(t *testing.T) {
	const live = busyGrowth / 2
	e := newEffort()
	cycles, rested := uint64(0), 0
	pass := func(ticks int, collections uint64) {
		for range ticks {
			cycles += collections
			if e.observe(cycles, live) {
				rested++
				cycles++ // the one that was asked for
				e.forget(cycles)
			}
		}
	}
	pass(10, 0)
	if !e.busy || e.growth != 200 {
		t.Errorf("at the start the heap may grow by %d %%", e.growth)
	}
	pass(100, 0)
	if e.busy || e.growth != frugalGrowth || rested != 1 {
		t.Errorf("at rest, after %d times of giving memory back, it may grow by %d %%", rested, e.growth)
	}
	for range 50 { // a little to do
		pass(9, 0)
		pass(1, 1)
	}
	if e.busy || rested != 1 {
		t.Error("a little to do is taken for much")
	}
	pass(busyTicks, 1)
	if !e.busy || e.growth != 200 {
		t.Errorf("under load it may grow by %d %%", e.growth)
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
