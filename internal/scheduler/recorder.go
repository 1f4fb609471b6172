package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"skiff/internal/client"
)

const (
	maxQueuedEvents = 10000 // further ones are dropped until there is room
	maxEventSeries  = 4096  // events that are remembered so that the same one again is counted, not created
	eventTries      = 12
	eventRetry      = 10 * time.Second
	seriesEnds      = 6 * time.Minute       // without another occurrence
	seriesRefreshed = 30 * time.Minute      // so that its event does not expire
	seriesLooked    = 5 * time.Minute       // how often series are looked through
	maxNote         = 1024                  // bytes of text that an event takes
	lull            = 20 * time.Millisecond // without another event: pods come no longer one after the other
	maxBehind       = 2 * time.Second       // that an event waits for a lull
)

// recorder writes events, one after the other and behind everything else: neither a cycle nor a binding waits for it, and while pods come one
// after the other their events wait for a lull, so that they do not take the API's time from bindings.
type recorder struct {
	api     kubernetes.Interface
	log     *slog.Logger
	host    string
	queue   chan happening
	dropped atomic.Int64
	last    atomic.Int64                  // when the last event was left, in nanoseconds
	series  map[seriesKey]*eventsv1.Event // of the goroutine that runs
}

// happening is an event that is to be written.
type happening struct {
	event *eventsv1.Event
	cause *corev1.Pod
}

// seriesKey is what makes an event the same again.
type seriesKey struct {
	eventType, action, reason, controller string
	regarding, related                    corev1.ObjectReference
}

func newRecorder(api kubernetes.Interface, log *slog.Logger) *recorder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &recorder{api: api, log: log, host: host, queue: make(chan happening, maxQueuedEvents), series: map[seriesKey]*eventsv1.Event{}}
}

// event says what happened to a pod. by is the scheduler's name in the pod's profile, related another pod that had to do with it, or nil.
func (r *recorder) event(pod, related *corev1.Pod, by, eventType, reason, action, note string) {
	now := time.Now()
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "." + strconv.FormatInt(now.UnixNano(), 16)},
		EventTime:           metav1.MicroTime{Time: now},
		ReportingController: by,
		ReportingInstance:   by + "-" + r.host,
		Action:              action,
		Reason:              reason,
		Regarding:           podReference(pod),
		Note:                shorten(note),
		Type:                eventType,
	}
	if related != nil {
		ref := podReference(related)
		e.Related = &ref
	}
	r.last.Store(now.UnixNano())
	select {
	case r.queue <- happening{e, pod}:
	default:
		if r.dropped.Add(1) == 1 {
			r.log.Warn("events come faster than the API takes them: some are dropped")
		}
	}
}

func podReference(pod *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
}

// shorten cuts a text to what an event takes.
func shorten(note string) string {
	const more = " ..."
	if len(note) <= maxNote {
		return note
	}
	return note[:maxNote-len(more)] + more
}

// run writes events until ctx ends.
func (r *recorder) run(ctx context.Context) {
	look := time.NewTicker(seriesLooked)
	defer look.Stop()
	refreshed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-r.queue:
			if n := r.dropped.Swap(0); n > 0 {
				r.log.Warn("events were dropped", "count", n)
			}
			if e := r.count(h.event); e != nil {
				r.awaitLull(ctx, e)
				r.write(client.Because(ctx, h.cause), e)
			}
		case now := <-look.C:
			again := now.Sub(refreshed) >= seriesRefreshed
			if again {
				refreshed = now
			}
			r.tidy(ctx, now, again)
		}
	}
}

// awaitLull returns when no other event has come for a moment, or when this one has waited long enough.
func (r *recorder) awaitLull(ctx context.Context, e *eventsv1.Event) {
	for ctx.Err() == nil {
		now := time.Now()
		wait := min(time.Unix(0, r.last.Load()).Add(lull).Sub(now), e.EventTime.Add(maxBehind).Sub(now))
		if wait <= 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// count returns what is to be written: the event, its series if it is the second time, or nothing if that is being counted already.
func (r *recorder) count(e *eventsv1.Event) *eventsv1.Event {
	if e.Type == corev1.EventTypeNormal {
		return e // what went well for a pod happens to it once
	}
	key := seriesKey{eventType: e.Type, action: e.Action, reason: e.Reason, controller: e.ReportingController, regarding: e.Regarding}
	if e.Related != nil {
		key.related = *e.Related
	}
	before := r.series[key]
	switch {
	case before == nil:
		if len(r.series) >= maxEventSeries {
			clear(r.series) // then the same event again is one more event, which is no harm
		}
		r.series[key] = e
		return e
	case before.Series == nil:
		before.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: e.EventTime}
		return before
	default:
		before.Series.Count++
		before.Series.LastObservedTime = e.EventTime
		return nil
	}
}

// tidy writes the last count of series that have ended, and of all if they are to be kept from expiring.
func (r *recorder) tidy(ctx context.Context, now time.Time, all bool) {
	for key, e := range r.series {
		last := e.EventTime.Time
		if e.Series != nil {
			last = e.Series.LastObservedTime.Time
		}
		ended := now.Sub(last) > seriesEnds
		if e.Series != nil && (ended || all) {
			r.write(ctx, e)
		}
		if ended {
			delete(r.series, key)
		}
	}
}

// write brings an event to the API, however long it is out of reach, up to a bound.
func (r *recorder) write(ctx context.Context, e *eventsv1.Event) {
	for range eventTries {
		err := r.writeOnce(ctx, e)
		if err == nil || ctx.Err() != nil || errors.Is(err, client.ErrNotLeading) {
			return
		}
		var refused apierrors.APIStatus
		var impossible *rest.RequestConstructionError
		if errors.As(err, &impossible) || errors.As(err, &refused) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) && !apierrors.IsTooManyRequests(err) {
			r.log.Debug("the API refused an event", "event", e.Name, "error", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(eventRetry):
		}
	}
	r.log.Warn("an event could not be written", "namespace", e.Namespace, "event", e.Name)
}

func (r *recorder) writeOnce(ctx context.Context, e *eventsv1.Event) error {
	events := r.api.EventsV1().Events(e.Namespace)
	if e.Series != nil {
		patch, err := json.Marshal(map[string]any{"series": e.Series})
		if err != nil {
			return err
		}
		_, err = events.Patch(ctx, e.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := events.Create(ctx, e, metav1.CreateOptions{})
	return err
}
