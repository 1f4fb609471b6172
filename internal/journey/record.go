package journey

import (
	"math"
	"net/http"
	"time"
)

const (
	maxStages = 32
	maxWrites = 4
	maxText   = 240 // bytes of resource, namespace, name, component and user together; longer text is cut
)

// A record is a trace as it is stored: of fixed size and without pointers. The server's own words (verbs, stages, resources
// written) are interned in the recorder's names; text that clients send is copied.
type record struct {
	context SpanContext
	parent  SpanID
	start   int64 // nanoseconds since 1970
	took    time.Duration
	code    int32

	verb                                       nameID
	stageCount, writeCount, causeCount         uint8
	textEnd                                    uint8
	resource, namespace, name, component, user textSpan

	text   [maxText]byte
	stages [maxStages]stage
	writes [maxWrites]write
	causes [MaxCauses]cause
}

// A textSpan is a range of a record's text.
type textSpan struct{ from, to uint8 }

func (s textSpan) in(r *record) string { return string(r.text[s.from:s.to]) }

type stage struct {
	begin tick
	name  nameID
}

type write struct {
	revision int64
	uid      shortText
	resource nameID
	at       tick
}

type cause struct {
	revision int64
	writer   SpanContext // zero while unknown
	uid      shortText
}

// reset initializes a record. Array elements beyond the counts need not be cleared.
func (r *record) reset(context SpanContext, parent SpanID, start time.Time, verb nameID) {
	r.context, r.parent, r.verb = context, parent, verb
	r.start, r.took, r.code = start.UnixNano(), 0, 0
	r.stageCount, r.writeCount, r.causeCount = 0, 0, 0
	r.textEnd, r.user = 0, textSpan{}
}

// inJourney reports whether the request belongs to a journey: it wrote something, or was made because of an object.
func (r *record) inJourney() bool { return r.writeCount > 0 || r.causeCount > 0 && !r.rejected() }

// rejected reports whether the request was unauthenticated or not served: its causes are ignored, because such requests could displace the traces of others.
func (r *record) rejected() bool {
	return r.code == http.StatusUnauthorized || r.code == http.StatusTooManyRequests
}

func (r *record) setText(resource, namespace, name, component string) {
	r.resource, r.namespace, r.name, r.component = r.addText(resource), r.addText(namespace), r.addText(name), r.addText(component)
}

func (r *record) addText(text string) textSpan {
	from := r.textEnd
	r.textEnd += uint8(copy(r.text[from:], text))
	return textSpan{from, r.textEnd}
}

func (r *record) addStage(name nameID, at time.Duration) {
	if r.stageCount < maxStages {
		r.stages[r.stageCount] = stage{begin: toTick(at), name: name}
		r.stageCount++
	}
}

func (r *record) addWrite(resource nameID, uid string, revision int64, at time.Duration) {
	if r.writeCount < maxWrites {
		r.writes[r.writeCount] = write{revision: revision, uid: toShort(uid), resource: resource, at: toTick(at)}
		r.writeCount++
	}
}

func (r *record) addCause(uid string, revision int64, writer SpanContext) {
	if r.causeCount < MaxCauses {
		r.causes[r.causeCount] = cause{revision: revision, uid: toShort(uid), writer: writer}
		r.causeCount++
	}
}

// about reports whether the request wrote the object or was made because of it.
func (r *record) about(uid shortText) bool {
	for _, w := range r.writes[:r.writeCount] {
		if w.uid == uid {
			return true
		}
	}
	for _, c := range r.causes[:r.causeCount] {
		if c.uid == uid {
			return true
		}
	}
	return false
}

// A tick is a time since the start of the request in tenths of a microsecond. It holds seven minutes, which is enough: of a watch only
// the first stages are of interest.
type tick uint32

func toTick(d time.Duration) tick      { return tick(min(max(d/100, 0), math.MaxUint32)) }
func (t tick) duration() time.Duration { return time.Duration(t) * 100 }

// shortText is a uid without a pointer.
type shortText struct {
	length uint8
	text   [maxUID]byte
}

func toShort(s string) (t shortText) {
	t.length = uint8(copy(t.text[:], s))
	return t
}

func (t shortText) String() string { return string(t.text[:t.length]) }
