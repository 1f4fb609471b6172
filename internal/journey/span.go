package journey

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Stages of a pod's way to Ready, as components name the spans of their work. Any short word will do; these are the ones that
// `skiff why` knows how to explain.
const (
	Decide   = "decide"         // a control loop looked at an object and did something about it
	Schedule = "schedule"       // the scheduler looked at the nodes
	Bind     = "bind"           // it told the API which one
	Pickup   = "kubelet pickup" // the kubelet learned of the pod and a worker took it
	Volumes  = "volumes"
	Cgroups  = "cgroups"
	Sandbox  = "sandbox" // namespaces and the pause container
	CNI      = "CNI"     // the sandbox's network
	Image    = "image"
	Create   = "create" // of a container
	Start    = "start"
	Hook     = "hook" // postStart or preStop
	Probe    = "probes"
	Ready    = "Ready"            // the kubelet told the API that the pod is ready
	Stop     = "stop"             // of a container, or of all of a pod
	Proxy    = "proxy programmed" // a node's kernel knows of a Service or of what is behind it
	Answer   = "first answer"     // somebody asked a Service and was answered
)

// Limits of a span. What is longer is cut where it is made; the server refuses what was not.
const (
	MaxWord       = 63  // component and stage
	MaxAttributes = 32  // further ones are not recorded
	MaxKey        = 128 // of an attribute
	MaxValue      = 512 // of an attribute, and of an error
	maxSpan       = 8 << 10
)

// A Span is a piece of work that a component did because of an object: beside requests, which the server sees itself, this is what a
// journey is made of. A request made within a span names it as its parent.
type Span struct {
	SpanContext
	Parent    SpanID `json:",omitzero"` // the span it is a part of
	Component string
	Stage     string
	Start     time.Time
	Duration  time.Duration
	// Causes are the object versions the work was done for or because of.
	Causes     []Cause     `json:",omitempty"`
	Attributes []Attribute `json:",omitempty"`
	Error      string      `json:",omitempty"`
	// Source is the user who sent it. The server sets it.
	Source string `json:",omitempty"`
}

// An Attribute says more about a span: the image that was pulled, what a node scored.
type Attribute struct{ Key, Value string }

// NewSpanContext identifies a span that begins now: a part of parent, or one of its own if that is zero.
func NewSpanContext(parent SpanContext) SpanContext {
	c := SpanContext{Trace: parent.Trace, Span: newSpanID()}
	if parent.IsZero() {
		c.Trace = newTraceID()
	}
	return c
}

// Clip cuts a span down to the limits.
func (s *Span) Clip() {
	s.Component, s.Stage, s.Error = clip(s.Component, MaxWord), clip(s.Stage, MaxWord), clip(s.Error, MaxValue)
	if len(s.Causes) > MaxCauses {
		s.Causes = s.Causes[:MaxCauses]
	}
	if len(s.Attributes) > MaxAttributes {
		s.Attributes = s.Attributes[:MaxAttributes]
	}
	room := maxSpan / 2 // so that all of it fits whatever the rest is
	for i := range s.Attributes {
		a := &s.Attributes[i]
		a.Key, a.Value = clip(a.Key, MaxKey), clip(a.Value, MaxValue)
		if room -= len(a.Key) + len(a.Value); room < 0 {
			s.Attributes = s.Attributes[:i]
			break
		}
	}
	s.Duration = max(s.Duration, 0)
}

// clip cuts at a character's boundary.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

var errSpan = errors.New("span")

// Check says what is wrong with a span that came from elsewhere.
func (s *Span) Check() error {
	switch {
	case s.Trace == TraceID{} || s.Span == SpanID{}:
		return fmt.Errorf("%w: has no id", errSpan)
	case !word(s.Component):
		return fmt.Errorf("%w: component must be 1 to %d printable characters", errSpan, MaxWord)
	case !word(s.Stage):
		return fmt.Errorf("%w: stage must be 1 to %d printable characters", errSpan, MaxWord)
	case s.Start.Before(epoch) || s.Start.After(end):
		return fmt.Errorf("%w: start is no time that can be kept", errSpan)
	case s.Duration < 0:
		return fmt.Errorf("%w: duration is negative", errSpan)
	case len(s.Causes) == 0 && s.Parent == SpanID{}:
		return fmt.Errorf("%w: has neither a cause nor a parent", errSpan)
	case len(s.Causes) > MaxCauses:
		return fmt.Errorf("%w: more than %d causes", errSpan, MaxCauses)
	case len(s.Attributes) > MaxAttributes:
		return fmt.Errorf("%w: more than %d attributes", errSpan, MaxAttributes)
	case len(s.Error) > MaxValue:
		return fmt.Errorf("%w: error is longer than %d bytes", errSpan, MaxValue)
	}
	for _, c := range s.Causes {
		if _, err := parseCause(c.String()); err != nil {
			return fmt.Errorf("%w: %w", errSpan, err)
		}
	}
	total := 0
	for _, a := range s.Attributes {
		total += len(a.Key) + len(a.Value)
		if len(a.Key) > MaxKey || len(a.Value) > MaxValue || total > maxSpan/2 {
			return fmt.Errorf("%w: an attribute's key is longer than %d bytes, its value than %d, or all of them than %d", errSpan, MaxKey, MaxValue, maxSpan/2)
		}
	}
	return nil
}

// Times are kept as nanoseconds since 1970.
var (
	epoch = time.Unix(0, 0)
	end   = time.Unix(1<<33, 0)
)

func word(s string) bool {
	return s != "" && len(s) <= MaxWord && strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || r == utf8.RuneError }) < 0
}
