package flowcontrol

import (
	"testing"
	"time"
)

// TestRetryAfter: clients are asked to wait longer while many requests are rejected, and shorter when few are.
func TestRetryAfter(t *testing.T) {
	var r retryAfter
	now := int64(1_000_000)
	reject := func(n int) (seconds int) {
		for range n {
			seconds = r.note(now)
		}
		now++
		return seconds
	}
	if got := reject(1); got != 1 {
		t.Errorf("at first: %d", got)
	}
	for range 200 {
		reject(100)
	}
	if got := reject(1); got != maxRetryAfter {
		t.Errorf("after many: %d", got)
	}
	now += 100
	if got := reject(1); got != maxRetryAfter-1 {
		t.Errorf("after a pause: %d", got)
	}
	for range 100 {
		reject(1)
		now++
	}
	if got := reject(1); got > 2 {
		t.Errorf("while one is rejected every other second: %d", got)
	}
	if got := r.lately(); got != 1 {
		t.Errorf("%d in the last second", got)
	}
}

// TestPressure: a flow may hold less and less while granted requests wait for a processor, and more again when they do not.
func TestPressure(t *testing.T) {
	c := newCore(600, 1, 1, func() int { return 0 })
	c.busySeats = 8
	now := time.Now()
	if got := c.holdable(100); got != 200 {
		t.Fatalf("at rest: %d", got)
	}
	c.pressure.note(10*time.Millisecond, now)
	c.pressure.note(10*time.Millisecond, now.Add(time.Millisecond)) // at once again: the first change has not had its effect yet
	if got := c.holdable(100); got != 100 {
		t.Errorf("under pressure: %d", got)
	}
	for range 20 {
		now = now.Add(10 * time.Millisecond)
		c.pressure.note(10*time.Millisecond, now)
	}
	if got := c.holdable(100); got != 8 {
		t.Errorf("under much pressure: %d", got)
	}
	if got := c.holdable(2); got != 4 {
		t.Errorf("of a small level: %d", got)
	}
	now = now.Add(time.Second)
	c.pressure.note(500*time.Microsecond, now)
	if got := c.holdable(100); got != 8 {
		t.Errorf("when it is neither: %d", got)
	}
	for range 20 {
		now = now.Add(doublingsEvery)
		c.pressure.note(0, now)
	}
	if got := c.holdable(100); got != 200 {
		t.Errorf("afterwards: %d", got)
	}
}

func TestWatchers(t *testing.T) {
	var w Watchers
	all, namespace, one := w.Add("", ""), w.Add("shop", ""), w.Add("shop", "web")
	for _, test := range []struct {
		namespace, name string
		want            int
	}{{"shop", "web", 3}, {"shop", "other", 2}, {"other", "web", 1}, {"", "", 1}} {
		if got := w.Of(test.namespace, test.name, 1); got != test.want {
			t.Errorf("%s/%s has %d watchers, want %d", test.namespace, test.name, got, test.want)
		}
	}
	if got := w.Of("shop", "web", 4); got != 0 {
		t.Errorf("%d watchers were counted though there cannot be enough", got)
	}
	all()
	namespace()
	one()
	if w.Of("shop", "web", 0) != 0 || len(w.counts) != 0 {
		t.Errorf("left behind: %v", w.counts)
	}
}
