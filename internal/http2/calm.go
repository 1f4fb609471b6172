package http2

import (
	"io"
	"time"

	"golang.org/x/net/http2"
)

const (
	// calmBurst is how many idle frames a client may send at once, and calmRate how many more a second after that. No client needs a tenth of it: a watch that is
	// stopped is a reset and a ping, a connection that is kept alive a ping in 30 seconds.
	calmBurst = 5000
	calmRate  = 500
)

// calm bounds the frames that make work for this side and move no request on: requests taken back at once (CVE-2023-44487) or made to fail (CVE-2025-8671), and floods
// of PING, SETTINGS, PRIORITY, empty DATA and unknown frames. It belongs to the reader.
type calm struct {
	used  float64   // of the burst, when it was last looked at
	since time.Time // when that was
}

// allow counts an idle frame. It returns false if the client has sent too many.
func (c *calm) allow() bool {
	now := time.Now()
	c.used = max(c.used-now.Sub(c.since).Seconds()*calmRate, 0) + 1
	c.since = now
	return c.used <= calmBurst
}

// maxReads is how many reads a frame may take, or a header block with its CONTINUATION frames: more than a frame takes that comes byte by byte.
const maxReads = 2 * recordSize

// boundedReader ends a header block that never does (CVE-2023-45288, with frames that are empty).
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

// idle says whether a frame moves nothing on.
func idle(frame http2.Frame) bool {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame, *http2.WindowUpdateFrame:
		return false
	case *http2.DataFrame:
		return len(f.Data()) == 0 && !f.StreamEnded()
	}
	return true
}
