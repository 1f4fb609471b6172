package http2

import (
	"net/http"
	"time"
)

// work is a request and who answers it.
type work struct {
	stream  *stream
	handler http.Handler
	request *http.Request
}

// stayTime is how long a goroutine that has run a handler waits for another request of its connection. Handlers go deep: a goroutine whose stack has
// grown once saves a tenth of what a short request costs.
const stayTime = time.Second

// hand has a request answered, by a goroutine that waits for one or else by a new one.
func (c *conn) hand(w work) {
	select {
	case c.todo <- w:
	default:
		c.handlers.Go(func() { c.answer(w) })
	}
}

// answer runs one handler after the other while there are requests.
func (c *conn) answer(w work) {
	stay := time.NewTimer(stayTime)
	defer stay.Stop()
	for {
		c.run(w)
		w = work{} // which is not to be kept until the next one
		stay.Reset(stayTime)
		select {
		case w = <-c.todo:
		case <-stay.C:
			return
		case <-c.ctx.Done():
			return
		}
	}
}
