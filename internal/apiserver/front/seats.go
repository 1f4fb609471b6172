package front

import (
	"context"
	"net/http"
	"time"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/flowcontrol"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
)

const (
	// maxSeatWait is how long a request queues for a seat: a quarter of the default request timeout, as upstream.
	maxSeatWait = 15 * time.Second
)

// NewFlowControl returns the flow control that lets so many requests execute at once.
func NewFlowControl(seats int) *flowcontrol.Controller {
	c, err := flowcontrol.New(flowcontrol.Options{Seats: seats, MaxWait: maxSeatWait})
	if err != nil {
		panic(err) // the default configuration is consistent
	}
	return c
}

// takeSeat queues a request that is not long-running for a seat, and reports whether it got one. w.Seat.Leave gives it back.
func (f *Front) takeSeat(ctx context.Context, w *response.Writer, r *http.Request, rt *request.Route, user *authn.User) bool {
	waited, ok := f.Flow.Enter(ctx, &w.Seat, &flowcontrol.Request{User: user.Username, Groups: user.Groups, Verb: rt.Verb, Resource: rt.Resource, Group: rt.Group,
		Plural: rt.Plural, Subresource: rt.Subresource, Namespace: rt.Namespace, Path: r.URL.Path, Mutating: mutating(r.Method)})
	w.SeatWait = waited
	return ok
}
