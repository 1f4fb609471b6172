package response

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/registry"
)

const (
	// stallTimeout is how long a client may make no progress with the body it sends or the response it reads, unless the request is long-running.
	stallTimeout = 15 * time.Second
	// errorStallTimeout is how long a client that is answered with an error may make no progress with reading it.
	errorStallTimeout = 2 * time.Second
	// lateWriteTimeout is how long after the request's deadline its response may be written over HTTP/1.1, so that the client learns of the timeout.
	lateWriteTimeout = 5 * time.Second
	// lateReadTimeout is how long after the request's deadline a read from its connection fails over HTTP/1.1: when the deadline has been noticed, and while there is time
	// to write. net/http reads what is left of a body before it writes.
	lateReadTimeout = time.Second
	// largeBody is the size of a body or a response from which a request keeps its seat while it waits for its client: so seats bound the memory of
	// such requests.
	largeBody = 256 << 10
	// firstBodyAllocation is the most bytes that are allocated for a body before any of it has arrived.
	firstBodyAllocation = 64 << 10
	// netHTTPBuffer is how many bytes of a response net/http buffers: writing them does not wait for the client.
	netHTTPBuffer = 4 << 10
)

// LimitWaits bounds how long a request that is not long-running waits for its client, in both directions. In process there are no limits.
func (w *Writer) LimitWaits(ctx context.Context) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return
	}
	switch under := w.ResponseWriter.(type) {
	case waitLimiter:
		under.LimitWaits(stallTimeout, deadline, w)
	case connDeadlines:
		w.conn, w.deadline = under, deadline
		w.allowSilence()
		_ = under.SetWriteDeadline(deadline.Add(lateWriteTimeout))
	}
}

// LeaveWhenWaiting gives back the seat of a watch as soon as it waits for its client.
func (w *Writer) LeaveWhenWaiting() {
	w.leaves = true
	if under, ok := w.ResponseWriter.(waitLimiter); ok {
		under.LimitWaits(0, time.Time{}, w)
	}
}

// waitLimiter is the response writer of internal/http2.
type waitLimiter interface {
	LimitWaits(stall time.Duration, deadline time.Time, waiter interface{ Waiting() })
}

// limitErrorWait bounds how long an error waits for its client to read it. Such a request may have no seat, so that seats do not bound how many wait.
func (w *Writer) limitErrorWait() {
	if under, ok := w.ResponseWriter.(waitLimiter); ok {
		under.LimitWaits(errorStallTimeout, time.Now().Add(errorStallTimeout), nil)
	}
}

// connDeadlines sets the deadlines of an HTTP/1.1 connection.
type connDeadlines interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// allowSilence lets an HTTP/1.1 client send nothing for as long as its request takes, and a little longer: net/http cancels a request when a read from its
// connection fails, and it is the request's own deadline that says what became of it.
func (w *Writer) allowSilence() {
	if w.conn != nil {
		_ = w.conn.SetReadDeadline(w.deadline.Add(lateReadTimeout))
	}
}

// Waiting gives the seat back when the request is about to wait for its client.
func (w *Writer) Waiting() {
	if w.leaves {
		w.Seat.Leave()
	} else if !w.keepsSeat {
		w.Seat.Park()
	}
}

// progressDeadline returns when the client must have made progress: stallTimeout from now, but not after latest.
func (w *Writer) progressDeadline(latest time.Time) time.Time {
	if at := time.Now().Add(stallTimeout); at.Before(latest) {
		return at
	}
	return latest
}

// writeWithDeadlines writes to an HTTP/1.1 connection whose client may not read: in chunks, each with a deadline of its own. The request has no seat
// meanwhile.
func (w *Writer) writeWithDeadlines(b []byte) (written int, err error) {
	w.Waiting()
	for err == nil && written < len(b) {
		_ = w.conn.SetWriteDeadline(w.progressDeadline(w.deadline.Add(lateWriteTimeout)))
		var n int
		n, err = w.ResponseWriter.Write(b[written:min(written+chunkSize, len(b))])
		written += n
	}
	return written, err
}

// ReadBody reads a request's body of the given length. A negative length is unknown: then ReadBody stops at one byte more than most. While it waits
// for the client the request has no seat, unless more than largeBody has arrived.
func (w *Writer) ReadBody(ctx context.Context, body io.Reader, length, most int64) ([]byte, error) {
	limit := int(length)
	if length < 0 {
		limit = int(most) + 1
	}
	b := make([]byte, 0, min(limit, firstBodyAllocation))
	for len(b) < limit {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(2*cap(b), limit)), b...)
		}
		if w.conn != nil {
			w.Waiting()
			_ = w.conn.SetReadDeadline(w.progressDeadline(w.deadline))
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF && (length < 0 || len(b) == limit) {
			break
		}
		if err != nil && len(b) < limit {
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
				return nil, registry.Timeout()
			}
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, apierrors.NewBadRequest(fmt.Sprintf("unable to read the request body: %v", err))
		}
		if len(b) > largeBody && !w.keepsSeat {
			w.keepsSeat = true
			if err := w.resume(ctx); err != nil {
				return nil, err
			}
		}
	}
	w.allowSilence()
	return b, w.resume(ctx)
}

// resume queues for a seat again if the request has given its seat back.
func (w *Writer) resume(ctx context.Context) error {
	waited, ok := w.Seat.Resume(ctx)
	w.SeatWait += waited
	if !ok {
		w.Seat.Stall(ctx)
		return w.TooManyRequests()
	}
	return nil
}
