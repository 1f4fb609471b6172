package controller

import (
	"strconv"
	"strings"

	"skiff/internal/client"
)

// tally sums up what a loop decided to do about a key, for its journey: "create Pod" 3 times, "update ReplicaSet status".
type tally struct {
	what  []string // in the order they came up
	count []int
}

// mostKinds bounds how many different things are listed.
const mostKinds = 12

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
		case *event: // shown by what they tell of
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
	if len(t.what) < mostKinds {
		t.what, t.count = append(t.what, text), append(t.count, 1)
	}
}

// tell ends the span of a decision. One to do nothing is not worth remembering.
func (t *tally) tell(span *client.Span, key Key, err error) {
	if len(t.what) == 0 && err == nil {
		return
	}
	span.Set("key", key.String())
	for i, what := range t.what {
		span.Set(what, strconv.Itoa(t.count[i]))
	}
	span.End(err)
}
