package cache

import (
	"sync"
	"time"
)

// Hot bounds the memory spent on derived forms, over all caches: it drops the oldest when they exceed the limit, and all of
// them when none was added for the idle time.
type Hot struct {
	limit int
	idle  time.Duration

	mu            sync.Mutex
	size          int
	entries       []hotEntry // oldest first
	usedSinceTick bool       // whether a form was added since the timer last fired
	timer         *time.Timer
	closed        bool
}

type hotEntry struct {
	item *Item
	form Form
	size int
}

// NewHot returns a Hot that keeps up to limit bytes of derived forms, and drops all when none was added for the idle time.
func NewHot(limit int, idle time.Duration) *Hot { return &Hot{limit: limit, idle: idle} }

// admit calls keep, which attaches a form to its item, unless the form is too large. keep runs under the lock, so that a form is never attached
// after it was dropped.
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
	h.entries = h.entries[drop:] // append reallocates when the capacity is used up, which frees the dropped entries
	h.usedSinceTick = true
	if h.timer == nil {
		h.timer = time.AfterFunc(h.idle, h.expire)
	}
}

// expire drops all forms if none was added since it last ran.
func (h *Hot) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if h.usedSinceTick {
		h.usedSinceTick = false
		h.timer.Reset(h.idle)
		return
	}
	for _, e := range h.entries {
		e.item.drop(e.form)
	}
	h.entries, h.size, h.timer = nil, 0, nil
}

// Close stops the timer; no form is kept from then on.
func (h *Hot) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.entries = nil
}
