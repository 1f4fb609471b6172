package http2

import (
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// To be woken costs a reader, and the client, which does the waking, as much as a short request. So where it can be told that nobody is the worse for it, a reader lets
// what comes gather: it asks the kernel to be woken for many bytes only, or after a moment.
//
// A client that reads a large answer or a busy watch tells of every few kilobytes it has read, in a record of its own, although its window is wide open. A reader that
// has seen nothing else for a while lets such news gather.
//
// And a client that has many requests under way sends the next ones while the reader is at the first: a reader that finds several whenever it looks may as well wait for a
// few. It would be wrong to if it is one request that follows on another, so what tells is how many come at a time, not how fast; and if the few did not come
// in that moment, the reader is woken for each again, for longer the more often that happens.

const (
	// lazyAfter is how often in a row a reader finds nothing but news of windows before it lets them gather.
	lazyAfter = 8
	// lazyBytes is how much it lets gather: twenty to thirty of them.
	lazyBytes = 1 << 10
	// crowdBytes is how much of requests: five or six short ones.
	crowdBytes = 1 << 9
	// lazyTime is for how long.
	lazyTime = time.Millisecond
	// wideWindow is what a client must let a stream have: with less, somebody may be waiting for the news.
	wideWindow = 1 << 20
)

// lazyReader decides what the reader of a connection is woken for.
type lazyReader struct {
	socket patient // nil if nothing can be asked of it

	// The reader's own.
	windows  int // how often in a row it found nothing but news of windows
	crowd    crowd
	found    bool // something, since it waited last
	other    bool // something else than news of windows
	requests int
	asked    bool // the kernel, since it was last woken for anything

	mu      sync.Mutex
	low     int         // how many bytes the kernel waits for; none was asked for if zero
	waiting bool        // for them
	late    bool        // the timer was over before they came
	timer   *time.Timer // for as long as it waits; nil until it is needed
}

// patient is a socket that can be asked to wake who reads for so many bytes only. Reading takes what there is all the same, and the end of the connection is always worth it.
type patient interface {
	wakeFor(bytes int) error
	// beforeWaiting is told what to do when nothing is left to read.
	beforeWaiting(do func())
}

// newLazyReader is for the reader of a connection; wide says whether the client's windows are.
func newLazyReader(o *outbox, wide func() bool) *lazyReader {
	l := &lazyReader{}
	if s, ok := o.Conn.(patient); ok {
		l.socket = s
		s.beforeWaiting(func() { l.wait(wide()) })
	}
	return l
}

// saw tells of a frame.
func (l *lazyReader) saw(f http2.Frame) {
	if !l.found && l.asked {
		l.mu.Lock()
		l.waiting = false
		l.mu.Unlock()
	}
	l.found = true
	switch f.Header().Type {
	case http2.FrameWindowUpdate:
		return
	case http2.FrameHeaders:
		l.requests++
	}
	l.other = true
}

// wait is called when the reader has taken all there is.
func (l *lazyReader) wait(wide bool) {
	if !l.found {
		return
	}
	bytes := 1
	switch {
	case !wide:
	case !l.other:
		if l.windows++; l.windows > lazyAfter {
			bytes = lazyBytes
		}
	default:
		l.windows = 0
		if l.crowd.came(time.Now(), l.requests, l.wasLate()) {
			bytes = crowdBytes
		}
	}
	if bytes > 1 {
		l.asked = true
		l.ask(bytes)
	} else if l.asked {
		l.asked = false
		l.hurry()
	}
	l.found, l.other, l.requests = false, false, 0
}

// ask has the reader left alone for a moment, unless much comes.
func (l *lazyReader) ask(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.low != bytes && l.socket.wakeFor(bytes) == nil {
		l.low = bytes
	}
	if l.low <= 1 {
		return
	}
	l.waiting, l.late = true, false
	if l.timer == nil {
		l.timer = time.AfterFunc(lazyTime, l.over)
	} else {
		l.timer.Reset(lazyTime)
	}
}

// over is when the moment is.
func (l *lazyReader) over() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting {
		l.late = true
		l.wakeForAny()
	}
}

func (l *lazyReader) wasLate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked && l.late
}

// hurry has the reader woken for whatever there is, and for whatever comes.
func (l *lazyReader) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = false
	l.wakeForAny()
}

func (l *lazyReader) wakeForAny() {
	if l.low > 1 {
		l.low = 1
		_ = l.socket.wakeFor(1) // it did this before
	}
}

// stop is called when nothing is read any more.
func (l *lazyReader) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}

const (
	// crowdLooks is over how many looks it is told whether requests come several at a time, and crowdRequests how many that takes.
	crowdLooks, crowdRequests = 16, 24
	// crowdWaited is how many it takes if they were waited for: more than were asked for, as it slows a client down if nearly all that it has under way are.
	crowdWaited = 8 * crowdLooks
	// crowdTime is the longest that may go by for each request.
	crowdTime = lazyTime / 2
	// crowdLate is how often they may not have come in time, as everybody is held up now and then.
	crowdLate = 4
	// leastPause and mostPause are for how long requests are not waited for after that was in vain, for the first time and after many.
	leastPause, mostPause = 16 * time.Millisecond, 4 * time.Second
)

// crowd tells whether requests come several at a time.
type crowd struct {
	looks, requests, late int
	since                 time.Time
	dense                 bool // they did, when it was last told, and are waited for

	pause time.Duration
	until time.Time
}

// came tells of a look that found so many requests, and whether they had been waited for for too long. It says whether the next ones are worth waiting for.
func (c *crowd) came(now time.Time, requests int, late bool) bool {
	if now.Before(c.until) {
		return false
	}
	if c.looks == 0 {
		c.since = now
	}
	c.looks++
	c.requests += requests
	if late && c.dense {
		c.late++
	}
	if c.looks < crowdLooks && c.late <= crowdLate {
		return c.dense
	}
	enough := crowdRequests
	if c.dense {
		enough = crowdWaited
	}
	many := c.requests >= enough && c.late <= crowdLate && now.Sub(c.since) <= time.Duration(c.requests)*crowdTime
	next := crowd{dense: many}
	switch {
	case c.dense && !many:
		next.pause = min(max(2*c.pause, leastPause), mostPause)
		next.until = now.Add(next.pause)
	case !c.dense:
		next.pause = c.pause
	}
	*c = next
	return many
}
