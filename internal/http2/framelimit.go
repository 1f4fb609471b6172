package http2

import (
	"io"
	"time"

	"golang.org/x/net/http2"
)

const (
	// idleFrameBurst is how many idle frames a client may send at once, and idleFrameRate how many more a second after that. No client needs a tenth of it: a watch
	// that is stopped is a reset and a ping, a connection that is kept alive a ping in 30 seconds.
	idleFrameBurst = 5000
	idleFrameRate  = 500
)

// idleFrameLimiter is a token bucket for frames that make work for the server and carry no request further: requests reset at once (CVE-2023-44487) or made to
// fail (CVE-2025-8671), and floods of PING, SETTINGS, PRIORITY, empty DATA and unknown frames. It belongs to the reader.
type idleFrameLimiter struct {
	used  float64   // tokens used at the time since
	since time.Time // the last call of allow
}

// allow counts an idle frame. It returns false if the client has sent too many.
func (l *idleFrameLimiter) allow() bool {
	now := time.Now()
	l.used = max(l.used-now.Sub(l.since).Seconds()*idleFrameRate, 0) + 1
	l.since = now
	return l.used <= idleFrameBurst
}

// maxReads bounds the reads that a frame, or a header block with its CONTINUATION frames, may take: more than a frame that arrives byte by byte.
const maxReads = 2 * recordSize

// boundedReader fails the reading of a header block that never ends, made of empty CONTINUATION frames (CVE-2023-45288).
type boundedReader struct {
	io.Reader
	reads int // since the last frame
}

func (r *boundedReader) Read(p []byte) (int, error) {
	if r.reads++; r.reads > maxReads {
		return 0, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return r.Reader.Read(p)
}

// isIdle reports whether a frame carries no request further.
func isIdle(frame http2.Frame) bool {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame, *http2.WindowUpdateFrame:
		return false
	case *http2.DataFrame:
		return len(f.Data()) == 0 && !f.StreamEnded()
	}
	return true
}
