package front

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/flowcontrol"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
)

const (
	// maxSeatWait is how long a request queues for a seat at most: a quarter of the default request timeout, as upstream.
	maxSeatWait = 15 * time.Second
	// bytesPerSeat is how many bytes of a list take a seat. maxStreamedBytes is what a list that is streamed from the cache takes of them at most.
	bytesPerSeat, maxStreamedBytes = 100_000, 1_000_000
	// watchersPerSeat is how many watchers of a write take a seat, for eventTime after the write has ended. Upstream counts 5 ms, but encodes an event for each of them.
	watchersPerSeat = 10
	eventTime       = 500 * time.Microsecond
)

// FlowOptions configure flow control.
type FlowOptions struct {
	API                *verbs.API
	ReadOnly, Mutating int  // requests of these kinds that may execute at once, together
	Unfair             bool // each kind has its own limit, and there are no priority levels
}

// NewFlowControl returns flow control that lets so many requests execute at once.
func NewFlowControl(o FlowOptions) *flowcontrol.Controller {
	return flowcontrol.New(flowcontrol.Options{ReadOnly: o.ReadOnly, Mutating: o.Mutating, Unfair: o.Unfair, MaxWait: maxSeatWait,
		Estimate: func(r *flowcontrol.Request) flowcontrol.Work { return estimate(o.API, r) }})
}

// takeSeat queues a request for a seat, and reports whether it got one. w.Seat.Leave gives it back.
func (f *Front) takeSeat(ctx context.Context, w *response.Writer, r *http.Request, rt *request.Route, user *authn.User, timeout time.Duration) bool {
	w.Seat.Request = flowcontrol.Request{User: user.Username, Groups: user.Groups, Verb: rt.Verb, Resource: rt.Resource, Group: rt.Group, Version: rt.Version,
		Plural: rt.Plural, Subresource: rt.Subresource, Namespace: rt.Namespace, Name: rt.Name, Path: r.URL.Path, Query: r.URL.RawQuery, Mutating: mutating(r.Method),
		Arrived: w.Began, MaxWait: timeout / 4}
	waited, ok := f.Flow.Enter(ctx, &w.Seat)
	w.SeatWait = waited
	if schema, level := w.Seat.UIDs(); schema != nil {
		h := w.Header()
		h[headerSchemaUID], h[headerLevelUID] = schema, level
	}
	return ok
}

// The headers that say by which objects a request was classified, in their canonical form.
const (
	headerSchemaUID = "X-Kubernetes-Pf-Flowschema-Uid"
	headerLevelUID  = "X-Kubernetes-Pf-Prioritylevel-Uid"
)

// estimate returns what a request costs, by upstream's rules.
func estimate(api *verbs.API, r *flowcontrol.Request) flowcontrol.Work {
	if !r.Resource {
		return flowcontrol.Work{}
	}
	switch r.Verb {
	case "list", "watch":
		if end := api.Endpoint(r.Group, r.Version, r.Plural); end != nil && end.Registry != nil {
			stats := end.Registry.Cache.Stats()
			return flowcontrol.Work{Seats: listSeats(r, int64(stats.Objects), stats.Bytes)}
		}
	case "create", "update", "patch", "delete":
		if r.Plural == "serviceaccounts" && r.Subresource == "token" {
			return flowcontrol.Work{} // nobody is told of it
		}
		if end := api.Endpoint(r.Group, r.Version, r.Plural); end != nil {
			return writeWork(end.Watchers.Of(r.Namespace, r.Name, watchersPerSeat))
		}
	}
	return flowcontrol.Work{}
}

// writeWork returns what a write costs that so many watchers are told of.
func writeWork(watchers int) flowcontrol.Work {
	if watchers < watchersPerSeat {
		return flowcontrol.Work{}
	}
	return flowcontrol.Work{FinalSeats: (watchers + watchersPerSeat - 1) / watchersPerSeat, AdditionalLatency: eventTime}
}

// listSeats returns how many seats a list takes, or a watch that begins with one, of a resource that has so many objects.
func listSeats(r *flowcontrol.Request, objects, bytes int64) int {
	if objects == 0 {
		return 1
	}
	o := parseListQuery(r.Query)
	if r.Verb == "watch" && !o.sendInitialEvents && o.revision != "" && o.revision != "0" {
		return 1 // it begins with no list
	}
	fromCache := r.Verb == "watch" || !o.fromStore()
	loaded := objects
	if o.limit > 0 {
		loaded = min(loaded, o.limit)
	}
	switch {
	case r.Name != "" || o.single:
		loaded = 1
	case !fromCache && o.selects:
		loaded = max(loaded, objects/2)
	}
	size := float64(loaded) * float64(bytes) / float64(objects)
	if fromCache {
		size = min(size, maxStreamedBytes)
	}
	return int(math.Ceil(size / bytesPerSeat))
}

// listQuery is what matters of the parameters of a list or watch.
type listQuery struct {
	limit             int64
	revision, match   string
	continues         bool
	sendInitialEvents bool
	selects, single   bool // objects, or one by its name
}

// parseListQuery reads a query without allocating memory for it. What is escaped in it, though it need not be, is not understood: the estimate is wrong then.
func parseListQuery(query string) (o listQuery) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "limit":
			o.limit, _ = strconv.ParseInt(value, 10, 64)
		case "resourceVersion":
			o.revision = value
		case "resourceVersionMatch":
			o.match = value
		case "continue":
			o.continues = value != ""
		case "sendInitialEvents":
			o.sendInitialEvents = value == "true" || value == "1"
		case "labelSelector", "fieldSelector":
			o.selects = o.selects || value != ""
			o.single = o.single || name == "fieldSelector" && (strings.HasPrefix(value, "metadata.name=") || strings.HasPrefix(value, "metadata.name%3D"))
		}
	}
	return o
}

// fromStore reports whether a list is of an older revision, which is not in the cache.
func (o *listQuery) fromStore() bool {
	switch {
	case o.match == "Exact":
		return true
	case o.match != "":
		return false
	case o.continues:
		return true
	default:
		return o.limit > 0 && o.revision != "" && o.revision != "0"
	}
}
