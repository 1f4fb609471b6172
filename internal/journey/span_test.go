package journey

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skiff/test/seed"
)

func fullSpan() Span {
	return Span{SpanContext: NewSpanContext(SpanContext{}), Parent: newSpanID(), Component: "kubelet", Stage: Sandbox,
		Start: time.Date(2026, 1, 2, 3, 4, 5, 6789, time.UTC), Duration: 200 * time.Millisecond, Causes: []Cause{{deploymentUID, 41}, {replicaSetUID, 42}},
		Attributes: []Attribute{{"handler", "runc"}, {"empty", ""}}, Error: "no such image: näh", Source: "system:node:one"}
}

func TestSpansComeBackAsTheyWere(t *testing.T) {
	r := New(Options{Capacity: 64})
	want := []Span{fullSpan(), {SpanContext: NewSpanContext(SpanContext{}), Component: "c", Stage: "s", Start: time.Unix(0, 0).UTC(), Causes: []Cause{{"u", 1}}}}
	for _, s := range want {
		r.PutSpan(s)
	}
	if diff := cmp.Diff(want, r.Spans()); diff != "" {
		t.Errorf("(-put +got):\n%s", diff)
	}
	body, err := json.Marshal(Batch{want})
	if err != nil {
		t.Fatal(err)
	}
	var got Batch
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Spans); diff != "" {
		t.Errorf("through JSON (-put +got):\n%s", diff)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	var none *Recorder
	none.PutSpan(want[0])
	if none.Spans() != nil || len(none.Tree("u").Roots) != 0 || none.Last("pods", "a", "b") != "" {
		t.Error("a nil recorder knows spans")
	}
}

func TestSpanLimits(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	s := fullSpan()
	s.Component, s.Stage, s.Error, s.Duration = long, long, long, -time.Second
	for range 100 {
		s.Causes = append(s.Causes, Cause{"u", 1})
		s.Attributes = append(s.Attributes, Attribute{long, long})
	}
	s.Clip()
	if err := s.Check(); err != nil {
		t.Errorf("a clipped span is refused: %v", err)
	}
	if n := len(appendSpan(nil, &s)); n > maxSpan {
		t.Errorf("a clipped span takes %d bytes, more than %d", n, maxSpan)
	}
	for what, spoil := range map[string]func(*Span){
		"no trace": func(s *Span) { s.Trace = TraceID{} }, "no id": func(s *Span) { s.SpanContext.Span = SpanID{} },
		"no component": func(s *Span) { s.Component = "" }, "a long stage": func(s *Span) { s.Stage = strings.Repeat("x", 64) },
		"an escape in the stage": func(s *Span) { s.Stage = "\x1b[2J" }, "a time before 1970": func(s *Span) { s.Start = time.Unix(-1, 0) },
		"no time": func(s *Span) { s.Start = time.Time{} }, "a time that cannot be kept": func(s *Span) { s.Start = time.Unix(1<<40, 0) },
		"a negative duration": func(s *Span) { s.Duration = -1 }, "five causes": func(s *Span) { s.Causes = append(s.Causes, s.Causes[:1]...); s.Causes = append(s.Causes, s.Causes...) },
		"neither cause nor parent": func(s *Span) { s.Causes, s.Parent = nil, SpanID{} }, "a cause without a uid": func(s *Span) { s.Causes[0].UID = "" },
		"a cause without a version": func(s *Span) { s.Causes[0].Revision = 0 }, "a long error": func(s *Span) { s.Error = strings.Repeat("x", 513) },
		"a long key": func(s *Span) { s.Attributes[0].Key = strings.Repeat("x", 129) }, "many attributes": func(s *Span) { s.Attributes = make([]Attribute, 33) },
		"large attributes": func(s *Span) {
			s.Attributes = []Attribute{{"a", strings.Repeat("x", 512)}}
			s.Attributes = repeat(s.Attributes, 9)
		},
	} {
		s := fullSpan()
		spoil(&s)
		if err := (&Batch{Spans: []Span{fullSpan(), s}}).Check(); err == nil || !strings.HasPrefix(err.Error(), "spans[1]: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if (&Batch{Spans: make([]Span, MaxBatch+1)}).Check() == nil {
		t.Error("a batch of too many spans passes")
	}
}

func repeat(a []Attribute, n int) (out []Attribute) {
	for range n {
		out = append(out, a...)
	}
	return out
}

// A byteRing is compared with a list, over many sizes of rings and entries.
func TestByteRing(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		size, most := 20+random.IntN(200), 1+random.IntN(10)
		tp := newByteRing(size, most)
		var all [][]byte
		for i := range 200 {
			entry := bytes.Repeat([]byte{byte(i)}, 1+random.IntN(size/2))
			tp.put(entry)
			all = append(all, entry)
			var got [][]byte
			total := 0
			tp.each(func(b []byte) { got = append(got, bytes.Clone(b)); total += len(b) })
			want := all[len(all)-len(got):]
			if !slices.EqualFunc(want, got, bytes.Equal) {
				t.Fatalf("seed %d: not the last %d entries: %v", seed, len(got), got)
			}
			if len(got) == 0 || len(got) > most || total > size {
				t.Fatalf("seed %d: %d entries of %d bytes on a tape of %d bytes and %d entries", seed, len(got), total, size, most)
			}
			// No more bytes are unused than one entry at the end of the ring can cost.
			if len(got) < most && len(all) > len(got) && total+len(all[len(all)-len(got)-1]) <= size/2 {
				t.Fatalf("seed %d: only %d of %d bytes are used", seed, total, size)
			}
		}
	}
	tp := newByteRing(10, 2)
	tp.put(nil)
	tp.put(make([]byte, 11))
	if tp.count != 0 {
		t.Error("what does not fit was put")
	}
}

func TestSpansConcurrently(t *testing.T) {
	r := New(Options{Capacity: 64})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 500 {
				s := fullSpan()
				s.Stage = fmt.Sprintf("stage %d %d", worker, i)
				s.Error = s.Stage
				r.PutSpan(s)
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			for _, s := range r.Spans() {
				if s.Stage != s.Error {
					t.Errorf("torn span: %+v", s)
				}
			}
			r.Tree(deploymentUID)
		}
	})
	wg.Wait()
}

func FuzzReadSpan(f *testing.F) {
	s := fullSpan()
	f.Add(appendSpan(nil, &s))
	f.Fuzz(func(t *testing.T, b []byte) { readSpan(b) }) // must not panic or take much memory
}

func BenchmarkPutSpan(b *testing.B) {
	r := New(Options{})
	s := fullSpan()
	b.ReportAllocs()
	for b.Loop() {
		r.PutSpan(s)
	}
}
