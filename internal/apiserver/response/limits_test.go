package response

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// timedConn is what a request over HTTP/1.1 has for a connection. It remembers until when reads may take.
type timedConn struct {
	http.ResponseWriter
	read time.Time
}

func (c *timedConn) SetReadDeadline(at time.Time) error {
	c.read = at
	return nil
}

func (c *timedConn) SetWriteDeadline(time.Time) error { return nil }

// net/http cancels a request of which a read fails, also when nothing more is to be read: that must not be before the request's own deadline, nor at it.
func TestSilentClient(t *testing.T) {
	deadline := time.Now().Add(time.Minute)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	c := &timedConn{}
	w := &Writer{ResponseWriter: c}
	w.LimitWaits(ctx)
	if !c.read.After(deadline) {
		t.Errorf("a request without a body is cancelled %v after its beginning", time.Until(c.read))
	}
	stalls := readerFunc(func(p []byte) (int, error) {
		if c.read.After(deadline) {
			t.Error("a body may take as long as its request")
		}
		return copy(p, "body"), nil
	})
	if got, err := w.ReadBody(ctx, stalls, 4, 100); err != nil || string(got) != "body" {
		t.Fatal(got, err)
	}
	if !c.read.After(deadline) {
		t.Errorf("a request is cancelled %v after its body has been read", time.Until(c.read))
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
