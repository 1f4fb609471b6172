package journey

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Stages of a pod's way to Ready, with which components name their spans. Any short name is allowed; these are the ones that
// `skiff why` can explain.
const (
	Decide   = "decide"         // a controller reconciled an object and acted
	Schedule = "schedule"       // the scheduler filtered and scored the nodes
	Bind     = "bind"           // the scheduler bound the pod
	Pickup   = "kubelet pickup" // the kubelet observed the pod and a pod worker took it
	Volumes  = "volumes"
	Cgroups  = "cgroups"
	Sandbox  = "sandbox" // namespaces and the pause container
	CNI      = "CNI"     // the sandbox's network
	Image    = "image"
	Create   = "create" // creation of a container
	Start    = "start"
	Hook     = "hook" // postStart or preStop
	Probe    = "probes"
	Ready    = "Ready"            // the kubelet reported the pod as ready
	Stop     = "stop"             // stop of a container, or of all containers of a pod
	Proxy    = "proxy programmed" // a node's kernel has the rules of a Service and its endpoints
	Answer   = "first answer"     // a Service answered a request
)

// Limits of a span. Clip cuts longer text in the component; the server refuses spans beyond the limits.
const (
	MaxWord       = 63  // bytes of a component or stage
	MaxAttributes = 32  // number of attributes; further ones are not recorded
	MaxKey        = 128 // bytes of an attribute's key
	MaxValue      = 512 // bytes of an attribute's value, and of an error
	maxSpan       = 8 << 10
)

// A Span is a piece of work that a component did because of an object. A journey consists of spans and of requests, which the server records
// itself. A request made within a span names it as its parent.
type Span struct {
	SpanContext
	Parent    SpanID `json:",omitzero"` // the span that this one is part of
	Component string
	Stage     string
	Start     time.Time
	Duration  time.Duration
	// Causes are the object versions the work was done for or because of.
	Causes     []Cause     `json:",omitempty"`
	Attributes []Attribute `json:",omitempty"`
	Error      string      `json:",omitempty"`
	// Source is the user who sent the span. The server sets it.
	Source string `json:",omitempty"`
}

// An Attribute is a detail of a span: the image that was pulled, a node's score.
type Attribute struct{ Key, Value string }

// NewSpanContext returns the context of a new span: a child of parent, or the root of a new trace if parent is zero.
func NewSpanContext(parent SpanContext) SpanContext {
	c := SpanContext{Trace: parent.Trace, Span: newSpanID()}
	if parent.IsZero() {
		c.Trace = newTraceID()
	}
	return c
}

// Clip cuts a span to the limits.
func (s *Span) Clip() {
	s.Component, s.Stage, s.Error = clip(s.Component, MaxWord), clip(s.Stage, MaxWord), clip(s.Error, MaxValue)
	if len(s.Causes) > MaxCauses {
		s.Causes = s.Causes[:MaxCauses]
	}
	if len(s.Attributes) > MaxAttributes {
		s.Attributes = s.Attributes[:MaxAttributes]
	}
	remaining := maxSpan / 2 // so that the whole span fits into maxSpan
	for i := range s.Attributes {
		a := &s.Attributes[i]
		a.Key, a.Value = clip(a.Key, MaxKey), clip(a.Value, MaxValue)
		if remaining -= len(a.Key) + len(a.Value); remaining < 0 {
			s.Attributes = s.Attributes[:i]
			break
		}
	}
	s.Duration = max(s.Duration, 0)
}

// clip cuts a string to a number of bytes, at a character's boundary.
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

// Check returns an error if a span that was received exceeds the limits or is incomplete.
func (s *Span) Check() error {
	switch {
	case s.Trace == TraceID{} || s.Span == SpanID{}:
		return fmt.Errorf("%w: has no id", errSpan)
	case !validWord(s.Component):
		return fmt.Errorf("%w: component must be 1 to %d printable characters", errSpan, MaxWord)
	case !validWord(s.Stage):
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

// epoch and end bound the times that can be recorded: they are stored as nanoseconds since 1970.
var (
	epoch = time.Unix(0, 0)
	end   = time.Unix(1<<33, 0)
)

// validWord reports whether a component or stage has a valid length and only printable characters.
func validWord(s string) bool {
	return s != "" && len(s) <= MaxWord && strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || r == utf8.RuneError }) < 0
}
