package response

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"skiff/internal/apiserver/flowcontrol"
)

// Writer remembers what was answered.
type Writer struct {
	http.ResponseWriter
	status int
	size   int64

	Seat     flowcontrol.Seat // of a request that is not long-running
	SeatWait time.Duration    // how long the request has waited for a seat
	heavy    bool             // it keeps its seat while it waits for its client
	conn     connDeadlines    // of a request over HTTP/1.1 that is not long-running
	deadline time.Time        // of such a request
}

func (w *Writer) WriteHeader(code int) {
	if w.status == 0 {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *Writer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	write := w.ResponseWriter.Write
	if w.conn != nil && len(b) > smallWrite {
		write = w.writeSlowly
	}
	n, err := write(b)
	w.size += int64(n)
	return n, err
}

// WriteAll writes what is in several places as if it were in one.
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
	return writePieces(w, func(l *listWriter) {
		for _, b := range all {
			l.buf = append(l.buf, b...)
			l.flushIfFull()
		}
	})
}

// Flush sends what has been written.
func (w *Writer) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Code returns the status code of the response; 200 if none has been written yet.
func (w *Writer) Code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// Hijack takes the connection out of HTTP's hands, to use it for another protocol.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, buf, err
}

// Size returns how many bytes of the response's body were written.
func (w *Writer) Size() int64 { return w.size }

// Begun reports whether any of the response has been sent.
func (w *Writer) Begun() bool { return w.status != 0 }
