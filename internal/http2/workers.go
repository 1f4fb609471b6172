package http2

import (
	"net/http"
	"time"
)

// handlerCall is a request and the handler that serves it.
type handlerCall struct {
	stream  *stream
	handler http.Handler
	request *http.Request
}

// workerIdleTime is how long a goroutine that has run a handler waits for another request of its connection. Handlers go deep: a goroutine whose stack has
// grown already saves a tenth of what a short request costs.
const workerIdleTime = time.Second

// dispatch has a request served by an idle worker, or by a new one if there is none.
func (c *conn) dispatch(call handlerCall) {
	select {
	case c.requests <- call:
	default:
		c.handlers.Go(func() { c.worker(call) })
	}
}

// worker runs one handler after the other, until no request has come for workerIdleTime.
func (c *conn) worker(call handlerCall) {
	idle := time.NewTimer(workerIdleTime)
	defer idle.Stop()
	for {
		c.run(call)
		call = handlerCall{} // so that the request is not kept in memory until the next one
		idle.Reset(workerIdleTime)
		select {
		case call = <-c.requests:
		case <-idle.C:
			return
		case <-c.ctx.Done():
			return
		}
	}
}
