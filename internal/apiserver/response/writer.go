package response

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"skiff/internal/apiserver/flowcontrol"
)

// Writer is the http.ResponseWriter of a request. It records what was answered, and bounds how long the request waits for its client.
type Writer struct {
	http.ResponseWriter
	status int
	size   int64

	Began     time.Time        // when the request arrived
	Seat      flowcontrol.Seat // of a request that is not long-running, or of a watch until it has begun; the front takes it
	SeatWait  time.Duration    // how long the request has waited for a seat
	leaves    bool             // the request needs no seat any more once it waits for its client
	keepsSeat bool             // the request keeps its seat while it waits for its client: see largeBody
	conn      connDeadlines    // of a request over HTTP/1.1 that is not long-running; nil for others
	deadline  time.Time        // of the request, if it has a conn
}

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(code int) {
	if w.status == 0 {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	write := w.ResponseWriter.Write
	if w.conn != nil && len(b) > netHTTPBuffer {
		write = w.writeWithDeadlines
	}
	n, err := write(b)
	w.size += int64(n)
	return n, err
}

// WriteAll writes several slices as if they were one.
func (w *Writer) WriteAll(all [][]byte) error {
	if to, ok := w.ResponseWriter.(interface{ WriteAll([][]byte) error }); ok {
		if w.status == 0 {
			w.status = http.StatusOK
		}
		for _, b := range all {
			w.size += int64(len(b))
		}
		return to.WriteAll(all)
	}
	return writeChunked(w, func(l *listWriter) {
		for _, b := range all {
			l.buf = append(l.buf, b...)
			l.flushIfFull()
		}
	})
}

// Flush implements http.Flusher.
func (w *Writer) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap returns the underlying http.ResponseWriter, for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Begun gives back the seat of a watch, which has sent its initial state.
func (w *Writer) Begun() {
	w.Seat.Executed(time.Since(w.Began)-w.SeatWait, true)
	w.Seat.Leave()
}

// Code returns the status code of the response; 200 if none has been written yet.
func (w *Writer) Code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// Hijack implements http.Hijacker: the connection is to be used for another protocol.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, buf, err
}

// Size returns how many bytes of the response's body were written.
func (w *Writer) Size() int64 { return w.size }

// Started reports whether any of the response has been sent.
func (w *Writer) Started() bool { return w.status != 0 }
