package flowcontrol

import (
	"testing"
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
