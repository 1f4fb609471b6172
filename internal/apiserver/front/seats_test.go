package front

import (
	"net/url"
	"testing"
	"time"

	"skiff/internal/apiserver/flowcontrol"
)

// TestListSeats: a list takes a seat for each 100 kB that it loads, as upstream's.
func TestListSeats(t *testing.T) {
	list := func(query string) flowcontrol.Request { return flowcontrol.Request{Verb: "list", Query: query} }
	watch := func(query string) flowcontrol.Request { return flowcontrol.Request{Verb: "watch", Query: query} }
	for name, test := range map[string]struct {
		r              flowcontrol.Request
		objects, bytes int64
		want           int
	}{
		"nothing":                          {list(""), 0, 0, 1},
		"few":                              {list(""), 10, 10_000, 1},
		"half a megabyte":                  {list(""), 500, 500_000, 5},
		"many, which are streamed":         {list(""), 100_000, 100_000_000, 10},
		"a page of many":                   {list("limit=500"), 100_000, 100_000_000, 5},
		"a page of few":                    {list("limit=500"), 100, 100_000, 1},
		"the next page, from the store":    {list("limit=5000&continue=abc"), 100_000, 100_000_000, 50},
		"an old revision":                  {list("resourceVersion=5&resourceVersionMatch=Exact"), 1000, 5_000_000, 50},
		"an old revision, selected":        {list("limit=10&continue=abc&labelSelector=a%3Db"), 1000, 5_000_000, 25},
		"not older than one":               {list("resourceVersion=5&resourceVersionMatch=NotOlderThan"), 1000, 5_000_000, 10},
		"one by a selector":                {list("fieldSelector=metadata.name%3Dx"), 100_000, 100_000_000, 1},
		"one by its name":                  {flowcontrol.Request{Verb: "watch", Name: "x"}, 100_000, 100_000_000, 1},
		"a watch from the beginning":       {watch("watch=1"), 500, 500_000, 5},
		"a watch of what there is":         {watch("resourceVersion=5&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), 500, 500_000, 5},
		"a watch of what happens from now": {watch("resourceVersion=5"), 500, 500_000, 1},
		"a watch from any revision":        {watch("resourceVersion=0"), 500, 500_000, 5},
		"a negative limit":                 {list("limit=-1"), 500, 500_000, 5},
		"a limit that is no number":        {list("limit=x"), 500, 500_000, 5},
	} {
		if got := listSeats(&test.r, test.objects, test.bytes); got != test.want {
			t.Errorf("%s: %d seats, want %d", name, got, test.want)
		}
	}
}

// TestWriteWork: a write keeps a seat for each ten watchers for a while.
func TestWriteWork(t *testing.T) {
	for watchers, want := range map[int]flowcontrol.Work{0: {}, 9: {}, 10: {FinalSeats: 1, AdditionalLatency: eventTime}, 95: {FinalSeats: 10, AdditionalLatency: eventTime}} {
		if got := writeWork(watchers); got != want {
			t.Errorf("%d watchers: %+v, want %+v", watchers, got, want)
		}
	}
	if eventTime > time.Millisecond {
		t.Error("an event is encoded once for all of its watchers")
	}
}

// FuzzListQuery: whatever a client sends as the query of a list, it takes a bounded number of seats, and what is not escaped is understood.
func FuzzListQuery(f *testing.F) {
	for _, query := range []string{"", "limit=5&continue=x", "resourceVersion=0&resourceVersionMatch=Exact", "&&=&limit", "sendInitialEvents=true", "fieldSelector=metadata.name%3Dx"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, verb := range []string{"list", "watch"} {
			r := flowcontrol.Request{Verb: verb, Query: query}
			if seats := listSeats(&r, 1000, 1_000_000); seats < 0 || seats > 10 {
				t.Errorf("%s %q takes %d seats", verb, query, seats)
			}
		}
		values, err := url.ParseQuery(query)
		if err != nil || len(values["resourceVersion"]) != 1 {
			return
		}
		if got, want := parseListQuery(query).revision, values.Get("resourceVersion"); got != "" {
			if unescaped, err := url.QueryUnescape(got); err != nil || unescaped != want {
				t.Errorf("%q: the revision is %q, want %q", query, got, want)
			}
		}
	})
}
