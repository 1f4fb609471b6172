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
	// refusalStall is the same for a client that is answered with an error.
	refusalStall = 2 * time.Second
	// lateWrite is how long after its deadline a request's response may be written over HTTP/1.1, so that the client is told of the timeout.
	lateWrite = 5 * time.Second
	// heavyRequest is the size of a body or a response from which a request keeps its seat while it waits for its client, so that seats bound the memory of such requests.
	heavyRequest = 256 << 10
	// firstBody is the most that is allocated for a body before any of it has arrived.
	firstBody = 64 << 10
	// smallWrite is what net/http buffers of a response: it does not wait for the client.
	smallWrite = 4 << 10
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
		_ = under.SetReadDeadline(deadline)
		_ = under.SetWriteDeadline(deadline.Add(lateWrite))
	}
}

// waitLimiter is the response writer of internal/http2.
type waitLimiter interface {
	LimitWaits(stall time.Duration, deadline time.Time, waiter interface{ Waiting() })
}

// limitRefusal leaves a client that is refused little time to read why: refusals have no seat, so seats do not bound their number.
func (w *Writer) limitRefusal() {
	if under, ok := w.ResponseWriter.(waitLimiter); ok {
		under.LimitWaits(refusalStall, time.Now().Add(refusalStall), nil)
	}
}

// connDeadlines are those of an HTTP/1.1 connection.
type connDeadlines interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Waiting gives the seat back when the request is about to wait for its client.
func (w *Writer) Waiting() {
	if !w.heavy {
		w.Seat.Park()
	}
}

// stallDeadline is when the client must have made progress.
func (w *Writer) stallDeadline(latest time.Time) time.Time {
	if at := time.Now().Add(stallTimeout); at.Before(latest) {
		return at
	}
	return latest
}

// writeSlowly writes to an HTTP/1.1 connection whose client may not read: in pieces, each with a deadline of its own, and without a seat.
func (w *Writer) writeSlowly(b []byte) (written int, err error) {
	w.Waiting()
	for err == nil && written < len(b) {
		_ = w.conn.SetWriteDeadline(w.stallDeadline(w.deadline.Add(lateWrite)))
		var n int
		n, err = w.ResponseWriter.Write(b[written:min(written+chunk, len(b))])
		written += n
	}
	return written, err
}

// ReadBody reads a request's body of the given length, or of unknown length if that is negative: then it stops at one byte more than most. While it waits for the
// client the request has no seat, unless the body is heavy.
func (w *Writer) ReadBody(ctx context.Context, body io.Reader, length, most int64) ([]byte, error) {
	limit := int(length)
	if length < 0 {
		limit = int(most) + 1
	}
	b := make([]byte, 0, min(limit, firstBody))
	for len(b) < limit {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(2*cap(b), limit)), b...)
		}
		if w.conn != nil {
			w.Waiting()
			_ = w.conn.SetReadDeadline(w.stallDeadline(w.deadline))
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
		if len(b) > heavyRequest && !w.heavy {
			w.heavy = true
			if err := w.resume(ctx); err != nil {
				return nil, err
			}
		}
	}
	return b, w.resume(ctx)
}

// resume gets a seat again if the request has given its seat back.
func (w *Writer) resume(ctx context.Context) error {
	waited, ok := w.Seat.Resume(ctx)
	w.SeatWait += waited
	if !ok {
		return TooManyRequests()
	}
	return nil
}
