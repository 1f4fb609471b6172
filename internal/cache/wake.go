package cache

import (
	"sync/atomic"
	"time"
)

// Waking many watchers for every single change costs more than the change itself. So watchers are woken for changes of their topic alone (topic.go), and there
// are two bells: one rings with every change, for those in this process; the other, for watchers from outside, rings at once for a change that comes alone, and
// lets changes that come in quick succession gather, the longer the more watchers there are.

const (
	// wakeCost is about what it takes to send a change to one watcher and for it to take it in. All of them together need that often.
	wakeCost = 30 * time.Microsecond
	// quickest and slowest bound what counts as quick succession. Gathering lasts twice as long, so that work goes on while the
	// watchers are served.
	quickest = 500 * time.Microsecond
	slowest  = 15 * time.Millisecond
)

// bell wakes everyone who waits for it. The cache's lock guards it: it is held to ring, and at least for reading to wait.
type bell struct {
	c      chan struct{}
	waited atomic.Bool // somebody may be waiting
}

func (b *bell) wait() <-chan struct{} {
	b.waited.Store(true)
	return b.c
}

func (b *bell) ring() {
	if b.waited.Swap(false) {
		close(b.c)
		b.c = make(chan struct{})
	}
}

// audience is those who are woken by the same changes.
type audience struct {
	changed   bell // rings with every change
	gathered  bell // the same for the patient
	gathering bool
	told      uint64    // the sequence up to which gathered has rung
	announced time.Time // when gathered last rang
	patient   int       // how many there are of these
}

// open is called for a new audience, which knows of the changes before a sequence.
func (a *audience) open(told uint64) {
	a.changed.c, a.gathered.c, a.told = make(chan struct{}), make(chan struct{}), told
}

// announce wakes who waits for changes. Called after a batch has been applied and the feed's revision moved.
func (c *Cache) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announceTo(&c.everyone)
	c.topics.eachDue(func(t *topic) { c.announceTo(&t.audience) })
}

func (c *Cache) announceTo(a *audience) {
	a.changed.ring()
	if a.gathering {
		return
	}
	quick := min(time.Duration(a.patient)*wakeCost, slowest)
	since := time.Since(a.announced)
	if quick < quickest || since >= quick {
		c.tell(a)
		return
	}
	a.gathering = true
	time.AfterFunc(2*quick-since, func() { c.endGathering(a) })
}

func (c *Cache) endGathering(a *audience) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.gathering = false
	c.tell(a)
}

// wake has everybody look.
func (c *Cache) wake(a *audience) {
	a.changed.ring()
	c.tell(a)
}

// tell lets patient cursors go on to here.
func (c *Cache) tell(a *audience) {
	a.announced, a.told = time.Now(), c.ring.next
	a.gathered.ring()
}
