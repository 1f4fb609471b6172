package cache

import (
	"sync"
	"time"
)

// Hot bounds the memory spent on derived forms, over all caches: the oldest are dropped when there are too many, and all of
// them when nobody has asked for one in a while.
type Hot struct {
	limit int
	idle  time.Duration

	mu      sync.Mutex
	size    int
	entries []hotEntry // oldest first
	used    bool       // since the timer was last looked at
	timer   *time.Timer
	closed  bool
}

type hotEntry struct {
	item *Item
	form Form
	size int
}

// NewHot keeps up to limit bytes of derived forms, and none after they have not been added to for the idle time.
func NewHot(limit int, idle time.Duration) *Hot { return &Hot{limit: limit, idle: idle} }

// admit has keep attach a form to its item, unless it is too large. It is called under the lock, so that a form is never attached after it
// was dropped.
func (h *Hot) admit(it *Item, f Form, size int, keep func()) {
	if size > h.limit/4 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	keep()
	h.entries = append(h.entries, hotEntry{it, f, size})
	h.size += size
	drop := 0
	for h.size > h.limit {
		e := h.entries[drop]
		e.item.drop(e.form)
		h.size -= e.size
		h.entries[drop] = hotEntry{}
		drop++
	}
	h.entries = h.entries[drop:] // append moves them when it runs out of room
	h.used = true
	if h.timer == nil {
		h.timer = time.AfterFunc(h.idle, h.expire)
	}
}

func (h *Hot) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if h.used {
		h.used = false
		h.timer.Reset(h.idle)
		return
	}
	for _, e := range h.entries {
		e.item.drop(e.form)
	}
	h.entries, h.size, h.timer = nil, 0, nil
}

// Close stops keeping forms.
func (h *Hot) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.entries = nil
}
