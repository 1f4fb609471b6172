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
	// maxWait is how long a request waits for a seat: a quarter of the default request timeout, as upstream.
	maxWait = 15 * time.Second
)

func NewFlowControl(seats int) *flowcontrol.Controller {
	c, err := flowcontrol.New(flowcontrol.Options{Seats: seats, MaxWait: maxWait})
	if err != nil {
		panic(err) // the default configuration is consistent
	}
	return c
}

// enter gets a seat for a request that is not long-running. w.Seat.Leave gives it back.
func (f *Front) enter(ctx context.Context, w *response.Writer, r *http.Request, rt *request.Route, user *authn.User) bool {
	waited, ok := f.Flow.Enter(ctx, &w.Seat, &flowcontrol.Request{User: user.Username, Groups: user.Groups, Verb: rt.Verb, Resource: rt.Resource, Group: rt.Group,
		Plural: rt.Plural, Subresource: rt.Subresource, Namespace: rt.Namespace, Path: r.URL.Path, Mutating: mutating(r.Method)})
	w.SeatWait = waited
	return ok
}
