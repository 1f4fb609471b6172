package cache

import (
	"sync"
	"time"
)

// Waking many watchers for every single change costs more than the change itself. So a cache has two bells: one rings with every
// change, for those in this process; the other, for watchers from outside, rings at once for a change that comes alone, and lets
// changes that come in quick succession gather, the longer the more watchers there are.

const (
	// wakeCost is about what it takes to send a change to one watcher and for it to take it in. All of them together need that often.
	wakeCost = 30 * time.Microsecond
	// quickest and slowest bound what counts as quick succession. Gathering lasts twice as long, so that work goes on while the
	// watchers are served.
	quickest = 500 * time.Microsecond
	slowest  = 15 * time.Millisecond
)

// bell wakes everyone who waits for it. Its owner's lock guards it.
type bell struct{ c chan struct{} }

func newBell() bell { return bell{make(chan struct{})} }

func (b *bell) ring() {
	close(b.c)
	b.c = make(chan struct{})
}

// Watching says that somebody outside follows the changes, until the returned function is called.
func (c *Cache) Watching() (done func()) {
	c.watchers.Add(1)
	return sync.OnceFunc(func() { c.watchers.Add(-1) })
}

// announce wakes who waits for changes. Called after a batch has been applied and the feed's revision moved.
func (c *Cache) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed.ring()
	if c.gathering {
		return
	}
	quick := min(time.Duration(c.watchers.Load())*wakeCost, slowest)
	since := time.Since(c.announced)
	if quick < quickest || since >= quick {
		c.tell()
		return
	}
	c.gathering = true
	time.AfterFunc(2*quick-since, c.endGathering)
}

func (c *Cache) endGathering() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathering = false
	c.tell()
}

// tell lets patient cursors go on to here.
func (c *Cache) tell() {
	c.announced, c.told = time.Now(), c.ring.next
	c.gathered.ring()
}
