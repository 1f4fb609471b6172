package journey

import (
	"slices"
	"time"
)

// A TraceView is a copy of a finished trace.
type TraceView struct {
	SpanContext
	Parent    SpanID `json:",omitzero"` // the client's span, if it sent one
	Verb      string
	Resource  string
	Namespace string `json:",omitempty"`
	Name      string `json:",omitempty"`
	Component string `json:",omitempty"`
	User      string `json:",omitempty"`
	Start     time.Time
	Duration  time.Duration
	Code      int
	Stages    []StageView `json:",omitempty"` // in the order they began
	Writes    []WriteView `json:",omitempty"`
	Causes    []CauseView `json:",omitempty"`
}

// A StageView is a part of a request. Begin counts from the request's start.
type StageView struct {
	Name     string
	Begin    time.Duration
	Duration time.Duration
}

// A WriteView is a version of an object that the request made.
type WriteView struct {
	Resource  string
	UID       string
	Revision  int64
	Delivered time.Time `json:",omitzero"` // when watchers first got it; zero if they did not, or it is no longer recorded
}

// A CauseView is a cause of a request: an object's version, and the request that wrote it if that is known.
type CauseView struct {
	Cause
	Writer SpanContext `json:",omitzero"`
}

// Snapshot returns copies of all recorded traces, in the order of their start. It does not contain traces that have not ended.
func (r *Recorder) Snapshot() []TraceView {
	return r.views(func(*record) bool { return true })
}

// Find returns copies of the traces that wrote an object or were caused by it, in the order of their start.
func (r *Recorder) Find(uid string) []TraceView {
	short := toShort(uid)
	return r.views(func(rec *record) bool { return rec.about(short) })
}

func (r *Recorder) views(want func(*record) bool) []TraceView {
	if r == nil {
		return nil
	}
	var views []TraceView
	visit := func(rec *record) {
		if want(rec) {
			views = append(views, r.view(rec))
		}
	}
	r.traces.each(visit)
	r.reads.each(visit)
	slices.SortStableFunc(views, func(a, b TraceView) int { return a.Start.Compare(b.Start) })
	return views
}

func (r *Recorder) view(rec *record) TraceView {
	v := TraceView{
		SpanContext: rec.context,
		Parent:      rec.parent,
		Verb:        r.names.name(rec.verb),
		Start:       time.Unix(0, rec.start).UTC(),
		Duration:    rec.took,
		Code:        int(rec.code),
	}
	v.Resource, v.Namespace, v.Name = rec.resource.in(rec), rec.namespace.in(rec), rec.name.in(rec)
	v.Component, v.User = rec.component.in(rec), rec.user.in(rec)
	for i, s := range rec.stages[:rec.stageCount] {
		end := rec.took
		if i+1 < int(rec.stageCount) {
			end = rec.stages[i+1].begin.duration()
		}
		v.Stages = append(v.Stages, StageView{Name: r.names.name(s.name), Begin: s.begin.duration(), Duration: max(end-s.begin.duration(), 0)})
	}
	for _, w := range rec.writes[:rec.writeCount] {
		write := WriteView{Resource: r.names.name(w.resource), UID: w.uid.String(), Revision: w.revision}
		if at := r.versions.deliveredAt(r.hash(write.UID), w.revision); at != 0 {
			write.Delivered = time.Unix(0, at).UTC()
			v.Stages = append(v.Stages, delivery(w.at.duration(), time.Duration(at-rec.start)))
		}
		v.Writes = append(v.Writes, write)
	}
	for _, c := range rec.causes[:rec.causeCount] {
		cause := CauseView{Cause: Cause{UID: c.uid.String(), Revision: c.revision}, Writer: c.writer}
		if cause.Writer.IsZero() {
			cause.Writer, _ = r.Writer(cause.UID, cause.Revision)
		}
		v.Causes = append(v.Causes, cause)
	}
	return v
}

// delivery returns the stage from the write until watchers got it. Watchers can be faster than the request's goroutine: then its
// duration is zero.
func delivery(wrote, delivered time.Duration) StageView {
	return StageView{Name: WatchDelivery, Begin: min(wrote, delivered), Duration: max(delivered-wrote, 0)}
}
