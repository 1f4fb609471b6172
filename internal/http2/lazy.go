package http2

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

// A client that reads a large answer or a busy watch tells of every few kilobytes it has read, in a record of its own, although its window is wide
// open. To be woken for each costs the server more than sending what was read, and the client, which does the waking, as much. So a reader that
// has seen nothing else for a while lets such news gather: it asks the kernel to be woken for many bytes only. For a moment only, as what comes next may be
// a request.

const (
	// lazyAfter is how often in a row a reader finds nothing but news of windows before it lets them gather.
	lazyAfter = 8
	// lazyBytes is how much it lets gather: twenty to thirty of them.
	lazyBytes = 1 << 10
	// lazyTime is for how long.
	lazyTime = time.Millisecond
	// wideWindow is what a client must let a stream have: with less, somebody may be waiting for the news.
	wideWindow = 1 << 20
)

// lazyReader decides what the reader of a connection is woken for.
type lazyReader struct {
	socket syscall.RawConn // nil if nothing can be asked of it

	// The reader's own.
	windows int  // how often in a row it found nothing but news of windows
	found   bool // something, since it waited last
	other   bool // something else
	asked   bool // the kernel, since something else came

	mu    sync.Mutex
	low   bool        // the kernel waits for lazyBytes; until the timer is over
	timer *time.Timer // nil until it is needed
}

func newLazyReader(o *outbox) *lazyReader {
	l := &lazyReader{}
	if s, ok := o.Conn.(syscall.Conn); ok && canWaitForBytes {
		l.socket, _ = s.SyscallConn() // without it there is nothing to ask
	}
	return l
}

// saw tells of a frame.
func (l *lazyReader) saw(f http2.Frame) {
	l.found = true
	l.other = l.other || f.Header().Type != http2.FrameWindowUpdate
}

// wait is called when the reader has taken all there is. wide says that the client's windows are.
func (l *lazyReader) wait(wide bool) {
	switch {
	case l.socket == nil || !l.found:
		return
	case l.other || !wide:
		if l.windows = 0; l.asked {
			l.asked = false
			l.hurry()
		}
	case l.windows < lazyAfter:
		l.windows++
	default:
		l.asked = true
		l.ask()
	}
	l.found, l.other = false, false
}

// ask has the reader left alone for a moment, unless much comes.
func (l *lazyReader) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.low && !l.setBytes(lazyBytes) {
		return
	}
	l.low = true
	if l.timer == nil {
		l.timer = time.AfterFunc(lazyTime, l.hurry)
	} else {
		l.timer.Reset(lazyTime)
	}
}

// hurry has the reader woken for whatever there is, and for whatever comes.
func (l *lazyReader) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.low {
		l.low = false
		l.setBytes(1)
	}
}

func (l *lazyReader) setBytes(n int) (done bool) {
	err := l.socket.Control(func(fd uintptr) { done = waitForBytes(fd, n) == nil })
	return err == nil && done
}

// stop is called when nothing is read any more.
func (l *lazyReader) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}
