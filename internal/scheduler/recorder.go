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
	maxQueuedEvents     = 10000 // further events are dropped until there is room
	maxEventSeries      = 4096  // events that are remembered so that a repetition is counted, not created
	eventTries          = 12
	eventRetry          = 10 * time.Second
	seriesTimeout       = 6 * time.Minute       // a series ends without another occurrence
	seriesRefreshPeriod = 30 * time.Minute      // how often a series is written so that its Event does not expire
	seriesCheckPeriod   = 5 * time.Minute       // how often series are checked
	maxNote             = 1024                  // bytes of text that an Event may have
	idlePeriod          = 20 * time.Millisecond // without another event: no burst of pods is being scheduled
	maxDelay            = 2 * time.Second       // how long an event waits for an idle period
)

// recorder writes Events in the background, one after the other: neither a cycle nor a binding waits for it, and during a burst of pods their Events wait
// for an idle period, so that they do not compete with bindings for the API server.
type recorder struct {
	api     kubernetes.Interface
	log     *slog.Logger
	host    string
	queue   chan queuedEvent
	dropped atomic.Int64
	last    atomic.Int64                  // when the last event was queued, in nanoseconds
	series  map[seriesKey]*eventsv1.Event // accessed only by run
}

// queuedEvent is an Event to be written.
type queuedEvent struct {
	event *eventsv1.Event
	cause *corev1.Pod
}

// seriesKey identifies repetitions of an Event.
type seriesKey struct {
	eventType, action, reason, controller string
	regarding, related                    corev1.ObjectReference
}

func newRecorder(api kubernetes.Interface, log *slog.Logger) *recorder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &recorder{api: api, log: log, host: host, queue: make(chan queuedEvent, maxQueuedEvents), series: map[seriesKey]*eventsv1.Event{}}
}

// event queues an Event about a pod. by is the profile's scheduler name, related another pod that is involved, or nil.
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
	case r.queue <- queuedEvent{e, pod}:
	default:
		if r.dropped.Add(1) == 1 {
			r.log.Warn("events are queued faster than the API server accepts them; dropping events")
		}
	}
}

func podReference(pod *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
}

// shorten cuts a note to the length that an Event may have.
func shorten(note string) string {
	const more = " ..."
	if len(note) <= maxNote {
		return note
	}
	return note[:maxNote-len(more)] + more
}

// run writes Events until ctx ends.
func (r *recorder) run(ctx context.Context) {
	look := time.NewTicker(seriesCheckPeriod)
	defer look.Stop()
	refreshed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-r.queue:
			if n := r.dropped.Swap(0); n > 0 {
				r.log.Warn("dropped events", "count", n)
			}
			if e := r.count(h.event); e != nil {
				r.waitForIdle(ctx, e)
				r.write(client.Because(ctx, h.cause), e)
			}
		case now := <-look.C:
			refreshAll := now.Sub(refreshed) >= seriesRefreshPeriod
			if refreshAll {
				refreshed = now
			}
			r.flushSeries(ctx, now, refreshAll)
		}
	}
}

// waitForIdle returns when no other event was queued for idlePeriod, or when this one has waited for maxDelay.
func (r *recorder) waitForIdle(ctx context.Context, e *eventsv1.Event) {
	for ctx.Err() == nil {
		now := time.Now()
		wait := min(time.Unix(0, r.last.Load()).Add(idlePeriod).Sub(now), e.EventTime.Add(maxDelay).Sub(now))
		if wait <= 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// count returns what to write: the Event, its series if it is the first repetition, or nil if the series is being counted already.
func (r *recorder) count(e *eventsv1.Event) *eventsv1.Event {
	if e.Type == corev1.EventTypeNormal {
		return e // a success happens to a pod once
	}
	key := seriesKey{eventType: e.Type, action: e.Action, reason: e.Reason, controller: e.ReportingController, regarding: e.Regarding}
	if e.Related != nil {
		key.related = *e.Related
	}
	before := r.series[key]
	switch {
	case before == nil:
		if len(r.series) >= maxEventSeries {
			clear(r.series) // a repetition then becomes one more Event, which does no harm
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

// flushSeries writes the last count of series that have ended, and of all series to keep their Events from expiring.
func (r *recorder) flushSeries(ctx context.Context, now time.Time, all bool) {
	for key, e := range r.series {
		last := e.EventTime.Time
		if e.Series != nil {
			last = e.Series.LastObservedTime.Time
		}
		ended := now.Sub(last) > seriesTimeout
		if e.Series != nil && (ended || all) {
			r.write(ctx, e)
		}
		if ended {
			delete(r.series, key)
		}
	}
}

// write writes an Event, and retries while the API server cannot be reached, up to a bound.
func (r *recorder) write(ctx context.Context, e *eventsv1.Event) {
	for range eventTries {
		err := r.writeOnce(ctx, e)
		if err == nil || ctx.Err() != nil || errors.Is(err, client.ErrNotLeading) {
			return
		}
		var refused apierrors.APIStatus
		var impossible *rest.RequestConstructionError
		if errors.As(err, &impossible) || errors.As(err, &refused) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) && !apierrors.IsTooManyRequests(err) {
			r.log.Debug("API server refused event", "event", e.Name, "error", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(eventRetry):
		}
	}
	r.log.Warn("failed to write event", "namespace", e.Namespace, "event", e.Name)
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
