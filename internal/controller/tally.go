package controller

import (
	"strconv"
	"strings"

	"skiff/internal/client"
)

// tally counts the actions that a loop decided on for a key, for its span in the journey: "create Pod" 3 times, "update ReplicaSet status" once.
type tally struct {
	what  []string // descriptions, in the order they came up
	count []int
}

// maxDescriptions bounds how many different descriptions are kept.
const maxDescriptions = 12

func (t *tally) add(actions []Action) {
	for _, a := range actions {
		if inner := Inner(a); inner != nil {
			t.add(inner)
			continue
		}
		switch a := a.(type) {
		case *write:
			text := a.verb + " " + kindOf(a.object)
			if a.subresource != "" {
				text += " " + a.subresource
			}
			t.note(text)
		case *event: // the write that an Event is about is counted
		default:
			what, _, _ := strings.Cut(a.String(), "\n")
			t.note(what)
		}
	}
}

func (t *tally) note(text string) {
	for i, what := range t.what {
		if what == text {
			t.count[i]++
			return
		}
	}
	if len(t.what) < maxDescriptions {
		t.what, t.count = append(t.what, text), append(t.count, 1)
	}
}

// endSpan ends the span of a decision. A span with neither actions nor an error is dropped.
func (t *tally) endSpan(span *client.Span, key Key, err error) {
	if len(t.what) == 0 && err == nil {
		return
	}
	span.Set("key", key.String())
	for i, what := range t.what {
		span.Set(what, strconv.Itoa(t.count[i]))
	}
	span.End(err)
}
