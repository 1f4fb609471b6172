package http2

import (
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Waking the reader costs the server, and the client, whose write does the waking, as much as a short request. So where nobody is the worse for it, the reader
// coalesces reads: it asks the kernel, by the socket's low-water mark (SO_RCVLOWAT), to be woken only for many bytes, and resets the mark after a millisecond.
//
// A client that reads a large response or a busy watch sends a WINDOW_UPDATE for every few kilobytes it has read, in a TLS record of its own, although its
// window is wide open. A reader that has seen nothing else for a while coalesces them.
//
// A client that has many requests in flight sends the next ones while the reader handles the first. A reader that finds several requests at each wake-up
// coalesces them. It must not do so for a client that sends one request after the other, so what counts is how many come at a time, not how fast; and if
// too few came before the timer fired, the reader is woken for each again, for longer the more often that happens.

const (
	// windowUpdatesBefore is how many wake-ups in a row must find nothing but WINDOW_UPDATE frames before they are coalesced.
	windowUpdatesBefore = 8
	// windowUpdateBytes is the low-water mark for WINDOW_UPDATE frames: twenty to thirty of them.
	windowUpdateBytes = 1 << 10
	// requestBytes is the low-water mark for requests: five or six short ones.
	requestBytes = 1 << 9
	// coalesceTime is how long the reader waits for the low-water mark.
	coalesceTime = time.Millisecond
	// wideWindow is the least initial window of a client whose frames are coalesced: with a smaller one, a handler may be waiting for a WINDOW_UPDATE.
	wideWindow = 1 << 20
)

// readCoalescer decides how many bytes wake the reader of a connection.
type readCoalescer struct {
	socket lowWaterSocket // nil if the socket has no low-water mark: then nothing is coalesced

	// These belong to the reader.
	windowUpdateWakes int // wake-ups in a row that found nothing but WINDOW_UPDATE frames
	bursts            burstDetector
	framesRead        bool // a frame was read since the last wait
	otherFramesRead   bool // one of them was not a WINDOW_UPDATE
	requestsRead      int  // how many of them began a request
	markRaised        bool // the low-water mark was raised for the last wait

	mu           sync.Mutex
	mark         int         // the low-water mark of the socket; 0 if it was never set
	waiting      bool        // the reader waits for the mark
	timerExpired bool        // the timer fired before the mark was reached
	timer        *time.Timer // resets the mark; nil until it is needed
}

// lowWaterSocket is a socket with a low-water mark for reading. A read returns what there is whatever the mark, and the end of the connection always wakes.
type lowWaterSocket interface {
	setLowWaterMark(bytes int) error
	// beforeWait sets a function that is called whenever nothing is left to read.
	beforeWait(do func())
}

// newReadCoalescer returns the coalescer of a connection; wide reports whether the client's windows are wide.
func newReadCoalescer(w *recordWriter, wide func() bool) *readCoalescer {
	r := &readCoalescer{}
	if s, ok := w.Conn.(lowWaterSocket); ok {
		r.socket = s
		s.beforeWait(func() { r.beforeWait(wide()) })
	}
	return r
}

// observe is called with each frame that was read.
func (r *readCoalescer) observe(f http2.Frame) {
	if !r.framesRead && r.markRaised {
		r.mu.Lock()
		r.waiting = false
		r.mu.Unlock()
	}
	r.framesRead = true
	switch f.Header().Type {
	case http2.FrameWindowUpdate:
		return
	case http2.FrameHeaders:
		r.requestsRead++
	}
	r.otherFramesRead = true
}

// beforeWait is called when the reader has read all there is, and sets the low-water mark for its next wake-up.
func (r *readCoalescer) beforeWait(wide bool) {
	if !r.framesRead {
		return
	}
	bytes := 1
	switch {
	case !wide:
	case !r.otherFramesRead:
		if r.windowUpdateWakes++; r.windowUpdateWakes > windowUpdatesBefore {
			bytes = windowUpdateBytes
		}
	default:
		r.windowUpdateWakes = 0
		if r.bursts.observe(time.Now(), r.requestsRead, r.wasLate()) {
			bytes = requestBytes
		}
	}
	if bytes > 1 {
		r.markRaised = true
		r.raiseMark(bytes)
	} else if r.markRaised {
		r.markRaised = false
		r.resetMark()
	}
	r.framesRead, r.otherFramesRead, r.requestsRead = false, false, 0
}

// raiseMark sets the low-water mark until coalesceTime has elapsed.
func (r *readCoalescer) raiseMark(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mark != bytes && r.socket.setLowWaterMark(bytes) == nil {
		r.mark = bytes
	}
	if r.mark <= 1 {
		return
	}
	r.waiting, r.timerExpired = true, false
	if r.timer == nil {
		r.timer = time.AfterFunc(coalesceTime, r.expire)
	} else {
		r.timer.Reset(coalesceTime)
	}
}

// expire is called when coalesceTime has elapsed: it wakes the reader for whatever there is.
func (r *readCoalescer) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting {
		r.timerExpired = true
		r.resetMarkLocked()
	}
}

// wasLate reports whether the timer fired before the low-water mark of the last wait was reached.
func (r *readCoalescer) wasLate() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.markRaised && r.timerExpired
}

// resetMark has the reader woken for any byte.
func (r *readCoalescer) resetMark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = false
	r.resetMarkLocked()
}

func (r *readCoalescer) resetMarkLocked() {
	if r.mark > 1 {
		r.mark = 1
		_ = r.socket.setLowWaterMark(1) // raising it has worked on this socket
	}
}

// stop stops the timer. It is called when nothing is read any more.
func (r *readCoalescer) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
}

const (
	// burstWakes is how many wake-ups are looked at together, and burstRequests how many requests they must have found for requests to come in bursts.
	burstWakes, burstRequests = 16, 24
	// coalescedRequests is how many requests burstWakes wake-ups must have found if they were coalesced: more than the low-water mark stands for, as a client
	// is slowed down if nearly all of its requests in flight are waited for.
	coalescedRequests = 8 * burstWakes
	// burstTime is the longest that may pass for each request.
	burstTime = coalesceTime / 2
	// maxLate is how many wake-ups may have come by the timer, as everybody is held up now and then.
	maxLate = 4
	// minPause and maxPause are for how long requests are not coalesced after that found too few, the first time and after many times.
	minPause, maxPause = 16 * time.Millisecond, 4 * time.Second
)

// burstDetector decides whether a client sends requests in bursts that are worth waiting for.
type burstDetector struct {
	wakes, requests, late int       // since the last decision
	since                 time.Time // the first wake-up since the last decision
	coalescing            bool      // the last decision

	pause time.Duration // how long the last pause was
	until time.Time     // when the pause ends
}

// observe takes the requests that a wake-up found, and whether it came by the timer. It reports whether the next requests are to be coalesced.
func (d *burstDetector) observe(now time.Time, requests int, late bool) bool {
	if now.Before(d.until) {
		return false
	}
	if d.wakes == 0 {
		d.since = now
	}
	d.wakes++
	d.requests += requests
	if late && d.coalescing {
		d.late++
	}
	if d.wakes < burstWakes && d.late <= maxLate {
		return d.coalescing
	}
	enough := burstRequests
	if d.coalescing {
		enough = coalescedRequests
	}
	bursts := d.requests >= enough && d.late <= maxLate && now.Sub(d.since) <= time.Duration(d.requests)*burstTime
	next := burstDetector{coalescing: bursts}
	switch {
	case d.coalescing && !bursts:
		next.pause = min(max(2*d.pause, minPause), maxPause)
		next.until = now.Add(next.pause)
	case !d.coalescing:
		next.pause = d.pause
	}
	*d = next
	return bursts
}
