//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// thingEvent is an event of a watch.
type thingEvent struct {
	what, name, value string
	uid               types.UID
	revision          int64
}

// thingSession is a list, or one watch from its start to its end.
type thingSession struct {
	from   int64 // the revision of the list, or that from which was watched
	listed map[string]thingEvent
	events []thingEvent
}

// thingWatcher lists and watches objects: all of them, or those that a label selects. Whenever its watch ends it resumes after the last event, or, unless it is
// faithful, lists again now and then.
type thingWatcher struct {
	t        *testing.T
	api      *rawAPI
	of       *thingDefinition
	random   *rand.Rand
	version  string
	part     string // the value of the label; "" for all objects
	faithful bool

	mu       sync.Mutex
	sessions []*thingSession
	last     int64
	expired  int
}

func (w *thingWatcher) run(ctx context.Context) {
	for ctx.Err() == nil && !w.t.Failed() {
		resumable := w.last != 0 && (w.faithful || w.random.IntN(3) > 0)
		if !resumable && !w.list(ctx) {
			pause(ctx)
			continue
		}
		w.watch(ctx)
	}
}

// pause is the time after which a request is tried again that failed because the definition was being replaced.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Millisecond):
	}
}

func (w *thingWatcher) path(options string) string {
	if w.part != "" {
		options += "&labelSelector=part%3D" + w.part
	}
	return w.of.objects(w.version, true) + "?" + options
}

// list lists the objects. It returns false if they are not served now.
func (w *thingWatcher) list(ctx context.Context) bool {
	turn := w.of.turn.Load()
	got := w.api.send(ctx, "GET", w.path("limit=0"), nil)
	switch {
	case ctx.Err() != nil:
		return false
	case !got.ok():
		w.failed("list", turn, got)
		return false
	}
	var list struct {
		Metadata metav1.ListMeta
		Items    []thing
	}
	got.decode(w.t, &list)
	s := &thingSession{from: parse(w.t, list.Metadata.ResourceVersion), listed: map[string]thingEvent{}}
	for i := range list.Items {
		s.listed[list.Items[i].Metadata.Name] = list.Items[i].event("LISTED")
	}
	w.begin(s)
	w.last = s.from
	return true
}

func (o *thing) event(what string) thingEvent {
	e := thingEvent{what: what, name: o.Metadata.Name, value: o.Spec.V, uid: o.Metadata.UID}
	_, _ = fmt.Sscan(o.Metadata.ResourceVersion, &e.revision) // 0 is found to be wrong later
	return e
}

func (w *thingWatcher) begin(s *thingSession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions = append(w.sessions, s)
}

// failed judges a list or watch that was refused.
func (w *thingWatcher) failed(what string, turn int64, got answer) {
	if got.code != http.StatusNotFound || turn%2 == 0 && w.of.turn.Load() == turn {
		w.t.Errorf("%s of %s (turn %d to %d): %v", what, w.of.plural(), turn, w.of.turn.Load(), got)
	}
}

// watch watches from the last revision until the watch ends.
func (w *thingWatcher) watch(ctx context.Context) {
	turn := w.of.turn.Load()
	options := fmt.Sprintf("watch=1&allowWatchBookmarks=true&resourceVersion=%d&timeoutSeconds=%d", w.last, 1+w.random.IntN(4))
	request, err := http.NewRequestWithContext(ctx, "GET", w.api.base+w.path(options), nil)
	if err != nil {
		w.t.Error(err)
		return
	}
	response, err := w.api.http.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			w.t.Errorf("watch of %s: %v", w.of.plural(), err)
		}
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		got := answer{code: response.StatusCode, body: body, err: err}
		if ctx.Err() == nil && !w.isExpired(got.status()) {
			w.failed("watch", turn, got)
			pause(ctx)
		}
		return
	}
	s := &thingSession{from: w.last}
	w.begin(s)
	for decoder := json.NewDecoder(response.Body); w.next(ctx, s, decoder); {
	}
}

// isExpired notes that the watcher must list again, if a status says so.
func (w *thingWatcher) isExpired(status metav1.Status) bool {
	if status.Code != http.StatusGone || status.Reason != metav1.StatusReasonExpired {
		return false
	}
	w.expired++
	w.last = 0
	return true
}

// next takes the next event. It returns false after the last.
func (w *thingWatcher) next(ctx context.Context, s *thingSession, decoder *json.Decoder) bool {
	var event struct {
		Type   string
		Object json.RawMessage
	}
	if err := decoder.Decode(&event); err != nil {
		if ctx.Err() == nil && !errors.Is(err, io.EOF) {
			w.t.Errorf("the watch of %s was cut: %v", w.of.plural(), err)
		}
		return false
	}
	if event.Type == "ERROR" {
		var status metav1.Status
		if err := json.Unmarshal(event.Object, &status); err != nil || !w.isExpired(status) {
			w.t.Errorf("the watch of %s from %d was told %s", w.of.plural(), s.from, event.Object)
		}
		return false
	}
	var object thing
	if err := json.Unmarshal(event.Object, &object); err != nil {
		w.t.Errorf("%v: %s", err, event.Object)
		return false
	}
	e := object.event(event.Type)
	if e.what != "BOOKMARK" && (e.revision <= w.last || object.APIVersion != thingGroup+"/"+w.version || object.Kind != w.of.kind()) {
		w.t.Errorf("%s: %s after %d", w.of.plural(), event.Object, w.last)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last = max(w.last, e.revision); e.what != "BOOKMARK" {
		s.events = append(s.events, e)
	}
	return true
}
