package cache

import (
	"sync/atomic"
	"time"
)

// Waking many watchers for every single change costs more than the change itself. So watchers are woken only for changes of their topic (topic.go), and there
// are two notifiers: `changed` fires for every change, for readers in this process; `batched`, for watchers over HTTP, fires at once for a change that comes alone
// and batches changes that come in quick succession, the longer the more watchers there are.

const (
	// wakeCost is about the time it takes to send a change to one watcher, and for the watcher to receive it.
	wakeCost = 30 * time.Microsecond
	// minBatchGap and maxBatchGap bound the time between two changes that counts as quick succession. A batch lasts twice as long, so that other
	// work goes on while the watchers are served.
	minBatchGap = 500 * time.Microsecond
	maxBatchGap = 15 * time.Millisecond
)

// notifier wakes all goroutines that wait for it. The cache's lock must be held for writing in notifyAll, and at least for reading in wait.
type notifier struct {
	c          chan struct{}
	hasWaiters atomic.Bool // whether somebody may be waiting
}

func (b *notifier) wait() <-chan struct{} {
	b.hasWaiters.Store(true)
	return b.c
}

func (b *notifier) notifyAll() {
	if b.hasWaiters.Swap(false) {
		close(b.c)
		b.c = make(chan struct{})
	}
}

// watcherGroup is the watchers that are woken by the same changes.
type watcherGroup struct {
	changed         notifier  // fires for every change
	batched         notifier  // fires when changes are flushed to the batched watchers
	flushScheduled  bool      // whether a timer will flush the changes
	flushedTo       uint64    // batched watchers may read changes before this sequence
	flushedAt       time.Time // when batched last fired
	batchedWatchers int       // number of watchers that wait for batched
}

// init prepares a group whose watchers have the changes before a sequence.
func (a *watcherGroup) init(flushedTo uint64) {
	a.changed.c, a.batched.c, a.flushedTo = make(chan struct{}), make(chan struct{}), flushedTo
}

// notify wakes the watchers that have new changes. It is called after a batch of the store has been applied and the feed's revision has advanced.
func (c *Cache) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notifyGroup(&c.allWatchers)
	c.topics.drainPending(func(t *topic) { c.notifyGroup(&t.watcherGroup) })
}

func (c *Cache) notifyGroup(a *watcherGroup) {
	a.changed.notifyAll()
	if a.flushScheduled {
		return
	}
	gap := min(time.Duration(a.batchedWatchers)*wakeCost, maxBatchGap)
	since := time.Since(a.flushedAt)
	if gap < minBatchGap || since >= gap {
		c.flush(a)
		return
	}
	a.flushScheduled = true
	time.AfterFunc(2*gap-since, func() { c.endBatch(a) })
}

func (c *Cache) endBatch(a *watcherGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.flushScheduled = false
	c.flush(a)
}

// wakeNow wakes all watchers of a group without batching.
func (c *Cache) wakeNow(a *watcherGroup) {
	a.changed.notifyAll()
	c.flush(a)
}

// flush lets batched watchers read all changes so far.
func (c *Cache) flush(a *watcherGroup) {
	a.flushedAt, a.flushedTo = time.Now(), c.ring.next
	a.batched.notifyAll()
}
