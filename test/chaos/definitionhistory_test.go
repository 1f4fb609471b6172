//go:build linux

package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
)

// incarnation is the time from the creation of a definition to its removal, as revisions of the store.
type incarnation struct {
	uid          types.UID
	added, ended int64 // ended is 0 while the definition exists
}

func (i incarnation) has(revision int64) bool {
	return revision >= i.added && (i.ended == 0 || revision < i.ended)
}

// thingHistory is all that was observed of the objects of a definition, by everybody.
type thingHistory struct {
	t            *testing.T
	name         string
	incarnations []incarnation
	events       []thingEvent // in order; a revision has one
	parts        map[string]string
	checked      struct{ sessions, events, lists int }
}

// incarnationsOf reads those of all definitions from their events, which begin before the first.
func incarnationsOf(t *testing.T, api *rawAPI, from int64) map[string][]incarnation {
	t.Helper()
	found := map[string][]incarnation{}
	got := api.must(t, "GET", fmt.Sprintf("%s?watch=1&resourceVersion=%d&timeoutSeconds=1", definitionsPath, from), nil)
	decoder := json.NewDecoder(bytesReader(got.body))
	for decoder.More() {
		var event struct {
			Type   string
			Object apiextensionsv1.CustomResourceDefinition
		}
		if err := decoder.Decode(&event); err != nil {
			t.Fatal(err)
		}
		name, revision := event.Object.Name, parse(t, event.Object.ResourceVersion)
		switch all := found[name]; event.Type {
		case "ADDED":
			found[name] = append(all, incarnation{uid: event.Object.UID, added: revision})
		case "DELETED":
			all[len(all)-1].ended = revision
		case "ERROR":
			t.Fatalf("%s", got.body)
		}
	}
	return found
}

// in returns which incarnation a revision is in; -1 if there was no definition then.
func (h *thingHistory) in(revision int64) int {
	return slices.IndexFunc(h.incarnations, func(i incarnation) bool { return i.has(revision) })
}

// collect puts together what the writers were told and what the watchers saw. Both must agree on what happened at a revision.
func (h *thingHistory) collect(writers []*thingWriter, watchers []*thingWatcher) {
	h.parts = map[string]string{}
	at := map[int64]thingEvent{}
	add := func(e thingEvent, who string) {
		known, is := at[e.revision]
		if !is {
			at[e.revision] = e
		} else if known.name != e.name || known.value != e.value || known.uid != e.uid || known.what != "WRITTEN" && e.what != "WRITTEN" && known.what != e.what {
			h.t.Errorf("%s: %s was told %v, others %v", h.name, who, e, known)
		} else if known.what == "WRITTEN" {
			at[e.revision] = e
		}
		if h.in(e.revision) < 0 {
			h.t.Errorf("%s: %s was told %v, when there was no definition", h.name, who, e)
		}
	}
	for _, w := range writers {
		for i := range thingsPerWriter {
			h.parts[fmt.Sprintf("w%d-%d", w.number, i)] = fmt.Sprint(w.number % 4)
		}
		for _, write := range w.writes {
			if !write.deleted {
				add(thingEvent{"WRITTEN", write.name, write.value, write.uid, write.revision}, "a writer")
			}
		}
	}
	for i, w := range watchers {
		for _, s := range w.sessions {
			for _, e := range s.events {
				add(e, fmt.Sprint("watcher ", i))
			}
		}
	}
	h.events = slices.SortedFunc(maps.Values(at), func(a, b thingEvent) int { return cmp.Compare(a.revision, b.revision) })
}

// between returns the events after a revision up to another of the objects with a label.
func (h *thingHistory) between(after, upTo int64, part string) (found []thingEvent) {
	for _, e := range h.events {
		if e.revision > after && e.revision <= upTo && (part == "" || h.parts[e.name] == part) {
			found = append(found, e)
		}
	}
	return found
}

// check checks what a watcher was told. known says from which revision on all events of an incarnation are known.
func (h *thingHistory) check(who int, w *thingWatcher) {
	for n, s := range w.sessions {
		where := fmt.Sprintf("%s: session %d of watcher %d (%s, part %q) from revision %d", h.name, n, who, w.version, w.part, s.from)
		if s.listed != nil {
			h.checkList(where, s, w.part)
			continue
		}
		h.checked.sessions++
		if len(s.events) == 0 {
			continue
		}
		h.checked.events += len(s.events)
		last := s.events[len(s.events)-1].revision
		if first, end := h.in(s.from), h.in(last); first != end {
			h.t.Errorf("%s, in incarnation %d (%v), told of %d in incarnation %d, first of %v", where, first, h.incarnations, last, end, s.events[0])
			continue
		}
		want := h.between(s.from, last, w.part)
		if slices.EqualFunc(want, s.events, func(a, b thingEvent) bool { return a == b || a.what == "WRITTEN" && a.revision == b.revision }) {
			continue
		}
		missing, surplus := without(want, s.events), without(s.events, want)
		h.t.Errorf("%s: was not told %v, was told too much %v", where, missing, surplus)
	}
}

// checkList compares a list with the events before it. A definition begins without objects.
func (h *thingHistory) checkList(where string, s *thingSession, part string) {
	h.checked.lists++
	number := h.in(s.from)
	if number < 0 {
		if len(s.listed) > 0 {
			h.t.Errorf("%s: listed when there was no definition: %v", where, s.listed)
		}
		return
	}
	want := map[string]thingEvent{}
	for _, e := range h.between(h.incarnations[number].added, s.from, part) {
		if e.what == "DELETED" {
			delete(want, e.name)
			continue
		}
		want[e.name] = e
	}
	for name, e := range want {
		if got, is := s.listed[name]; !is || got.revision != e.revision || got.value != e.value {
			h.t.Errorf("%s: listed %s as %v, must be %v", where, name, got, e)
		}
	}
	for name, got := range s.listed {
		if _, is := want[name]; !is {
			h.t.Errorf("%s: listed %v, which must not be there", where, got)
		}
	}
}

// last returns the objects that are there after all events.
func (h *thingHistory) last() map[string]thingEvent {
	now := h.incarnations[len(h.incarnations)-1]
	there := map[string]thingEvent{}
	for _, e := range h.between(now.added, 1<<62, "") {
		if there[e.name] = e; e.what == "DELETED" {
			delete(there, e.name)
		}
	}
	return there
}

// without returns the events of a whose revisions b does not have.
func without(a, b []thingEvent) (rest []thingEvent) {
	for _, e := range a {
		if !slices.ContainsFunc(b, func(other thingEvent) bool { return other.revision == e.revision }) {
			rest = append(rest, e)
		}
	}
	return rest
}
