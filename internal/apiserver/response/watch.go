package response

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

const (
	// bookmarkEvery is how often a watcher that asks for bookmarks gets one.
	bookmarkEvery = time.Minute
	// watchStallTimeout is how long a watcher may not read what was written before its connection is aborted.
	watchStallTimeout = 30 * time.Second
	// WatchBatch is how many changes a watcher takes at once.
	WatchBatch = 256
)

// WatchStream sends the events of a watch to a client: as a stream over HTTP, or as the messages of a WebSocket.
type WatchStream struct {
	rs         *Responder
	selector   registry.Selector
	all        bool // every change of the resource is selected
	frames     framer
	opts       *metav1.ListOptions
	watch      registry.StartedWatch
	out        [][]byte     // encoded events that have not been sent yet
	size       int          // bytes of out
	socket     *eventSocket // nil unless the client asked for a WebSocket
	stallTimer *time.Timer  // cuts off a client that does not read; runs while something is being written
}

// NewWatchStream returns a stream in the encoding that the client accepts. It fails if there is none for streams.
func (rs *Responder) NewWatchStream(selector registry.Selector, opts *metav1.ListOptions) (*WatchStream, error) {
	frames, err := rs.frames()
	if err != nil {
		return nil, err
	}
	return &WatchStream{rs: rs, selector: selector, frames: frames, opts: opts, all: selector.All() && selector.Namespace == ""}, nil
}

// Serve calls run, which is to be Run or Refuse, once the connection is a WebSocket, if the client asks for one, and returns when run does.
func (s *WatchStream) Serve(ctx context.Context, run func(context.Context)) error {
	if !s.rs.WantsWebSocket() {
		run(ctx)
		return nil
	}
	return s.rs.WebSocket(ctx, requireOrigin, func(ctx context.Context, ws *websocket.Conn) {
		s.socket = &eventSocket{ws, s.frames.contentType() == codec.JSONType}
		run(ctx)
	})
}

// Run sends the initial state of a watch, if it has one, and then its changes, until ctx ends or the client is gone.
func (s *WatchStream) Run(ctx context.Context, watch registry.StartedWatch) {
	s.watch = watch
	s.watch.Patient = true
	s.begin()
	if s.watch.SendInitial && !s.sendInitial(ctx) {
		return
	}
	s.rs.W.Begun()
	changes := make([]*cache.Change, 0, WatchBatch)
	for s.follow(ctx, changes) {
		if s.opts.AllowWatchBookmarks && !s.bookmark(s.watch.Seen(), false) {
			return
		}
	}
}

// Refuse sends a stream with nothing but an error: clients that resume watches look for some errors there.
func (s *WatchStream) Refuse(status metav1.Status) {
	s.begin()
	s.refuse(status)
}

// begin sends the headers of the stream.
func (s *WatchStream) begin() {
	if s.socket == nil {
		h := s.rs.W.Header()
		h["Content-Type"] = []string{s.frames.contentType()}
		s.rs.W.WriteHeader(http.StatusOK)
	}
	s.stallTimer = time.AfterFunc(watchStallTimeout, s.rs.abort)
	s.flush()
}

// refuse sends an ERROR event, with which the stream is to end.
func (s *WatchStream) refuse(status metav1.Status) {
	s.enqueue(s.frames.failure(status))
	s.flush()
}

// follow sends changes until it is time for a bookmark. It returns false if the watch has ended.
func (s *WatchStream) follow(ctx context.Context, changes []*cache.Change) bool {
	tick, stop := context.WithTimeout(ctx, bookmarkEvery)
	defer stop()
	for {
		got, err := s.watch.Next(tick, changes[:0])
		switch {
		case err == nil:
			if got, err = s.watch.Convert(ctx, got); err != nil {
				if ctx.Err() == nil {
					s.fail(err)
				}
				return false
			}
			if !s.send(got) {
				return false
			}
		case ctx.Err() != nil:
			return false
		case errors.Is(err, context.DeadlineExceeded):
			return true
		case errors.Is(err, cache.ErrRemoved):
			return false
		default:
			s.refuse(StatusOf(err))
			return false
		}
	}
}

// sendInitial sends the initial state of the watch, and a bookmark when it is complete if the client asked for one. It returns false if the watch has
// ended.
func (s *WatchStream) sendInitial(ctx context.Context) bool {
	clientGone := false
	var err error
	if s.watch.Initial.Items, err = s.rs.Resource.Registry.CurrentAll(ctx, s.watch.Initial.Items, s.rs.Reading()); err != nil {
		return s.fail(err)
	}
	err = s.watch.Initial.Each(ctx, func(it *cache.Item) error {
		event, err := s.frames.event(&cache.Change{Type: cache.Added, Item: it}, cache.Added, it, false)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		if clientGone = !s.enqueue(event); clientGone {
			return context.Canceled
		}
		return nil
	})
	switch {
	case clientGone || ctx.Err() != nil:
		return false
	case err != nil:
		s.refuse(StatusOf(err))
		return false
	}
	revision := s.watch.Initial.Revision
	s.watch.Initial = registry.Page{}
	if s.opts.SendInitialEvents != nil && s.opts.AllowWatchBookmarks {
		return s.bookmark(revision, true)
	}
	return s.flush()
}

// send sends those of the changes that are selected, in one write. It returns false if the watch has ended.
func (s *WatchStream) send(changes []*cache.Change) bool {
	for _, c := range changes {
		kind, it, shared := c.Type, c.Item, true
		if !s.all || c.Initializing() {
			if kind, it = s.selector.Event(c); it == nil {
				continue
			}
			shared = kind == c.Type
		}
		event, err := s.frames.event(c, kind, it, shared)
		if err != nil {
			return s.fail(err)
		}
		if !s.enqueue(event) {
			return false
		}
	}
	return len(s.out) == 0 || s.flush()
}

// bookmark sends a bookmark event. initialEnd marks the end of the initial state.
func (s *WatchStream) bookmark(revision int64, initialEnd bool) bool {
	obj := s.rs.Resource.Info.New().(catalog.Object)
	obj.SetResourceVersion(strconv.FormatInt(revision, 10))
	if initialEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	event, err := s.frames.object("BOOKMARK", obj)
	if err != nil {
		return s.fail(err)
	}
	return s.enqueue(event) && s.flush()
}

func (s *WatchStream) fail(err error) bool {
	if !errors.As(err, new(*catalog.ConversionError)) {
		err = apierrors.NewInternalError(err)
	}
	s.refuse(StatusOf(err))
	return false
}

// enqueue adds an event to those that are to be sent, and flushes them at chunkSize. A WebSocket gets each event in a message of its own.
func (s *WatchStream) enqueue(event []byte) bool {
	if len(event) == 0 { // an error that could not be encoded
		return true
	}
	s.out, s.size = append(s.out, event), s.size+len(event)
	return s.size < chunkSize && s.socket == nil || s.flush()
}

// flush sends the enqueued events. It returns false if the client is gone.
func (s *WatchStream) flush() bool {
	s.stallTimer.Reset(watchStallTimeout)
	defer s.stallTimer.Stop()
	if len(s.out) > 0 {
		if s.rs.ProtoMajor != 2 {
			s.rs.W.Waiting() // nothing says whether it does
		}
		if s.write() != nil {
			return false
		}
		clear(s.out)
		if s.out, s.size = s.out[:0], 0; cap(s.out) > WatchBatch {
			s.out = nil
		}
	}
	if s.socket == nil {
		s.rs.W.Flush()
	}
	return true
}

func (s *WatchStream) write() error {
	if s.socket != nil {
		return s.socket.send(s.out[0])
	}
	return s.rs.W.WriteAll(s.out)
}
