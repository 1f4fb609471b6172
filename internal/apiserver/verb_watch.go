package apiserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

const (
	// bookmarkEvery is how often a watcher that asks for bookmarks gets one if nothing else comes.
	bookmarkEvery = time.Minute
	// stuckAfter is how long a watcher may leave unread what was written.
	stuckAfter = 30 * time.Second
	// watchBatch is how many changes are taken and written at once.
	watchBatch = 256
)

// watch streams changes until the client goes, the time is over or the server stops.
func (rq *Request) watch() error {
	accept, err := codec.Negotiate(rq.Header.Get("Accept"), codec.AsTable, codec.AsPartial)
	if err != nil {
		return err
	}
	rq.Accept = accept
	opts, err := request.ParseListOptions(rq.Query)
	if err != nil {
		return err
	}
	if err := registry.ValidateListOptions(opts, true); err != nil {
		return err
	}
	fieldSelector := opts.FieldSelector
	if rq.Route.Name != "" {
		if fieldSelector != "" {
			fieldSelector += ","
		}
		fieldSelector += "metadata.name=" + rq.Route.Name
	}
	selector, err := rq.Endpoint.Registry.NewSelector(rq.Endpoint.Info, rq.Route.Namespace, opts.LabelSelector, fieldSelector)
	if err != nil {
		return err
	}
	frames, err := rq.frames()
	if err != nil {
		return err
	}
	timeout := rq.server.opts.MinWatch + rand.N(rq.server.opts.MinWatch)
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(rq.Ctx, timeout)
	defer cancel()
	stop := context.AfterFunc(rq.server.stopping, cancel)
	defer stop()
	s := &watchStream{rq: rq, selector: selector, frames: frames, opts: opts, all: selector.All() && selector.Namespace == ""}
	run := s.run
	switch err := s.open(ctx); {
	case err == nil:
		defer s.watch.Close()
	case apierrors.IsResourceExpired(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		// Clients that resume watches look for these in the stream.
		run = func(context.Context) {
			s.begin()
			s.refuse(statusOf(err))
		}
	default:
		return err
	}
	if !rq.wantsWebSocket() {
		run(ctx)
		return nil
	}
	return rq.webSocket(ctx, fromSomewhere, func(ctx context.Context, ws *websocket.Conn) {
		s.socket = &eventSocket{ws, frames.contentType() == codec.JSONType}
		run(ctx)
	})
}

// watchStream is one watcher: a place in the stream of changes and a way to write them.
type watchStream struct {
	rq       *Request
	selector registry.Selector
	all      bool // every change concerns this watcher
	frames   framer
	opts     *metav1.ListOptions
	watch    *registry.Watch
	initial  registry.Page
	begun    bool         // with an initial state
	out      [][]byte     // events that are to be sent, as they were encoded
	size     int          // of these
	socket   *eventSocket // nil unless the client asked for one
	stuck    *time.Timer  // cuts a watcher that does not read; runs while something is written
}

// open finds the place to start from, which can still fail with a proper answer.
func (s *watchStream) open(ctx context.Context) (err error) {
	reg := s.rq.Endpoint.Registry
	version := s.opts.ResourceVersion
	wantsInitial := s.opts.SendInitialEvents != nil && *s.opts.SendInitialEvents
	if s.opts.SendInitialEvents == nil && (version == "" || version == "0") { // as watches began before they could say what they want
		wantsInitial = true
		s.opts.SendInitialEvents = &wantsInitial
	}
	after, err := registry.ParseResourceVersion(version)
	if err != nil {
		return err
	}
	if wantsInitial || after == 0 {
		if err := reg.WaitFor(ctx, version); err != nil {
			return err
		}
		s.initial, s.watch, err = reg.WatchFromNow(ctx, s.selector, wantsInitial)
		s.begun = wantsInitial
		return err
	}
	s.watch, err = reg.Watch(ctx, s.selector, after)
	return err
}

// begin answers that a stream follows.
func (s *watchStream) begin() {
	if s.socket == nil {
		h := s.rq.W.Header()
		h["Content-Type"] = []string{s.frames.contentType()}
		s.rq.W.WriteHeader(http.StatusOK)
	}
	s.stuck = time.AfterFunc(stuckAfter, s.rq.cut)
	s.flush()
}

// refuse ends the stream with an error.
func (s *watchStream) refuse(status metav1.Status) {
	s.gather(s.frames.failure(status))
	s.flush()
}

func (s *watchStream) run(ctx context.Context) {
	s.watch.Patient = true
	defer s.rq.server.metrics.Long("WATCH", s.rq.Route)()
	s.begin()
	if s.begun && !s.sendInitial(ctx) {
		return
	}
	changes := make([]*cache.Change, 0, watchBatch)
	for s.follow(ctx, changes) {
		if s.opts.AllowWatchBookmarks && !s.bookmark(s.watch.Seen(), false) {
			return
		}
	}
}

// follow sends changes until it is time for a bookmark. It returns false if the watch is over.
func (s *watchStream) follow(ctx context.Context, changes []*cache.Change) bool {
	tick, stop := context.WithTimeout(ctx, bookmarkEvery)
	defer stop()
	for {
		got, err := s.watch.Next(tick, changes[:0])
		switch {
		case err == nil:
			if !s.send(got) {
				return false
			}
		case ctx.Err() != nil:
			return false
		case errors.Is(err, context.DeadlineExceeded):
			return true
		default:
			s.refuse(statusOf(err))
			return false
		}
	}
}

// sendInitial sends the state the watch begins with, and says when it is complete if the client asked so.
func (s *watchStream) sendInitial(ctx context.Context) bool {
	gone := false
	err := s.initial.Each(ctx, func(it *cache.Item) error {
		event, err := s.frames.event(&cache.Change{Type: cache.Added, Item: it}, cache.Added, it, false)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		if gone = !s.gather(event); gone {
			return context.Canceled
		}
		return nil
	})
	switch {
	case gone || ctx.Err() != nil:
		return false
	case err != nil:
		s.refuse(statusOf(err))
		return false
	}
	revision := s.initial.Revision
	s.initial = registry.Page{}
	if s.opts.SendInitialEvents != nil && s.opts.AllowWatchBookmarks {
		return s.bookmark(revision, true)
	}
	return s.flush()
}

// send writes the changes that concern this watcher, all at once.
func (s *watchStream) send(changes []*cache.Change) bool {
	for _, c := range changes {
		kind, it, shared := c.Type, c.Item, true
		if !s.all {
			if kind, it = s.selector.Event(c); it == nil {
				continue
			}
			shared = kind == c.Type
		}
		event, err := s.frames.event(c, kind, it, shared)
		if err != nil {
			return s.fail(err)
		}
		if !s.gather(event) {
			return false
		}
	}
	return len(s.out) == 0 || s.flush()
}

func (s *watchStream) bookmark(revision int64, initialEnd bool) bool {
	obj := s.rq.Endpoint.Info.New().(catalog.Object)
	obj.SetResourceVersion(strconv.FormatInt(revision, 10))
	if initialEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	event, err := s.frames.object("BOOKMARK", obj)
	if err != nil {
		return s.fail(err)
	}
	return s.gather(event) && s.flush()
}

func (s *watchStream) fail(err error) bool {
	s.refuse(statusOf(apierrors.NewInternalError(err)))
	return false
}

// gather adds an event to what is to be sent, and sends it if it is much. A WebSocket gets each event by itself.
func (s *watchStream) gather(event []byte) bool {
	if len(event) == 0 { // a failure that could not be put into words
		return true
	}
	s.out, s.size = append(s.out, event), s.size+len(event)
	return s.size < chunk && s.socket == nil || s.flush()
}

// flush sends what has been gathered.
func (s *watchStream) flush() bool {
	s.stuck.Reset(stuckAfter)
	defer s.stuck.Stop()
	if len(s.out) > 0 {
		if s.write() != nil {
			return false
		}
		clear(s.out)
		if s.out, s.size = s.out[:0], 0; cap(s.out) > watchBatch {
			s.out = nil
		}
	}
	if s.socket == nil {
		s.rq.W.Flush()
	}
	return true
}

func (s *watchStream) write() error {
	if s.socket != nil {
		return s.socket.send(s.out[0])
	}
	return s.rq.W.WriteAll(s.out)
}
