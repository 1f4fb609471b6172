package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

func static(document string) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(document), nil }
}

// thing returns documents of a group version with one resource, and counts how often they are built.
func thing(n int, description string, builds *atomic.Int32) (path string, v3, v2 func() ([]byte, error)) {
	path = fmt.Sprintf("apis/g%d.example.com/v1", n)
	count := func(format string) func() ([]byte, error) {
		return func() ([]byte, error) {
			builds.Add(1)
			return fmt.Appendf(nil, format, path, n, description), nil
		}
	}
	return path, count(`{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{"/%s/":{}},"components":{"schemas":{"com.example.g%d.v1.Thing":{"description":%q}}}}`),
		count(`{"paths":{"/%s/":{"get":{"responses":{"200":{"description":"OK"}}}}},"definitions":{"com.example.g%d.v1.Thing":{"description":%q,"type":"object"}},
			"parameters":{}}`)
}

// mergedDocument returns v2 in both forms, which it checks against each other, with and without compression.
func mergedDocument(t testing.TB, h http.Handler) (definitions map[string]json.RawMessage, etag string) {
	t.Helper()
	r := send(h, "GET", "/openapi/v2")
	etag = r.Header.Get("Etag")
	data := body(t, r)
	var document struct {
		Definitions, Paths, Parameters map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	for _, headers := range [][]string{{"Accept-Encoding: gzip"}, {"Range: bytes=0-"}} {
		if r := send(h, "GET", "/openapi/v2", headers...); !bytes.Equal(body(t, r), data) || r.Header.Get("Etag") != etag {
			t.Errorf("v2 differs with %s", headers)
		}
	}
	r = send(h, "GET", "/openapi/v2", "Accept: "+v2Asked)
	encoded := body(t, r)
	if tag := r.Header.Get("Etag"); tag != etag {
		t.Errorf("in protobuf v2 has ETag %s, in JSON %s", tag, etag)
	}
	if r := send(h, "GET", "/openapi/v2", "Accept: "+v2Asked, "Accept-Encoding: gzip"); !bytes.Equal(body(t, r), encoded) {
		t.Error("v2 in protobuf differs with gzip")
	}
	var message openapi_v2.Document
	if err := proto.Unmarshal(encoded, &message); err != nil {
		t.Fatal(err)
	}
	if p, d := len(message.Paths.Path), len(message.Definitions.AdditionalProperties); p != len(document.Paths) || d != len(document.Definitions) {
		t.Errorf("in protobuf v2 has %d paths and %d definitions, in JSON %d and %d", p, d, len(document.Paths), len(document.Definitions))
	}
	if n := len(message.Parameters.AdditionalProperties); n != len(document.Parameters) {
		t.Errorf("in protobuf v2 has %d parameters, in JSON %d", n, len(document.Parameters))
	}
	return document.Definitions, etag
}

// TestBuiltWhenAsked checks that documents are built at the first request, kept, built again only if they changed, and dropped when idle.
func TestBuiltWhenAsked(t *testing.T) {
	now := noon()
	h := New(func() time.Time { return now })
	var v3, v2 atomic.Int32
	put := func(n int, hash, description string) {
		path, buildV3, _ := thing(n, description, &v3)
		_, _, buildV2 := thing(n, description, &v2)
		if err := h.Put(path, hash, buildV3, buildV2); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		put(n, "1", "a")
	}
	urls := listed(t, h)
	first := urls["apis/g1.example.com/v1"]
	expect := func(when string, wantV3, wantV2 int32) {
		t.Helper()
		if v3.Load() != wantV3 || v2.Load() != wantV2 {
			t.Errorf("%s: %d v3 and %d v2 documents were built, want %d and %d", when, v3.Load(), v2.Load(), wantV3, wantV2)
		}
	}
	expect("listed", 0, 0)
	for range 2 {
		if r := send(h, "GET", first); r.StatusCode != 200 || !bytes.Contains(body(t, r), []byte("g1.v1.Thing")) {
			t.Errorf("v3: %s", r.Status)
		}
	}
	definitions, etag := mergedDocument(t, h)
	if len(definitions["com.example.g2.v1.Thing"]) == 0 || len(definitions["io.k8s.api.core.v1.Pod"]) == 0 {
		t.Error("v2 lacks a definition")
	}
	expect("sent", 1, 3)

	put(1, "1", "a")
	if _, again := mergedDocument(t, h); again != etag || listed(t, h)["apis/g1.example.com/v1"] != first {
		t.Error("the same hash is a change for clients")
	}
	expect("put with the same hash", 1, 3)

	put(1, "2", "b")
	if r := send(h, "GET", first); r.StatusCode != 301 || r.Header.Get("Location") != listed(t, h)["apis/g1.example.com/v1"] {
		t.Errorf("with the old hash: %s to %s", r.Status, r.Header.Get("Location"))
	}
	definitions, changed := mergedDocument(t, h)
	if changed == etag || !strings.Contains(string(definitions["com.example.g1.v1.Thing"]), `"b"`) {
		t.Errorf("after a change v2 has ETag %s and %s", changed, definitions["com.example.g1.v1.Thing"])
	}
	expect("changed", 1, 4)

	now = now.Add(2 * idle)
	h.dropIdle()
	if h.base != nil || h.sweep != nil || h.merged != [forms]*lastModified{} {
		t.Error("something is kept when idle")
	}
	for _, headers := range [][]string{{}, {"Accept: " + v2Asked}} {
		if r := send(h, "GET", "/openapi/v2", append(headers, "If-None-Match: "+changed)...); r.StatusCode != 304 {
			t.Errorf("v2 is unchanged: %s", r.Status)
		}
	}
	expect("asked for again with the ETag", 1, 4)
	if _, again := mergedDocument(t, h); again != changed {
		t.Error("built again, v2 has another ETag")
	}
	expect("asked for again", 1, 7)
	h.dropIdle()
	if h.base == nil || h.sweep == nil {
		t.Error("what is used is dropped")
	}
	h.Delete("apis/g1.example.com/v1")
	if definitions, _ := mergedDocument(t, h); definitions["com.example.g1.v1.Thing"] != nil || definitions["com.example.g0.v1.Thing"] == nil {
		t.Error("v2 after a deletion")
	}
	h.sweep.Stop()
}

func TestConcurrentRequestsBuildOnce(t *testing.T) {
	h := newHandler()
	var builds atomic.Int32
	for n := range 20 {
		path, v3, v2 := thing(n, "a", &builds)
		if err := h.Put(path, "1", v3, v2); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			headers := []string{"Accept: " + v2Asked}[i%2:]
			if r := send(h, "GET", "/openapi/v2", headers...); r.StatusCode != 200 {
				t.Error(r.Status)
			}
			for n := range 20 {
				send(h, "GET", fmt.Sprintf("/openapi/v3/apis/g%d.example.com/v1", n))
			}
		})
		all.Go(func() { // changes of another one, meanwhile
			path, v3, v2 := thing(100+i, "a", &atomic.Int32{})
			h.Put(path, "1", v3, v2)
			h.dropIdle()
			h.Delete(path)
		})
	}
	all.Wait()
	if n := builds.Load(); n != 40 {
		t.Errorf("40 documents were built %d times", n)
	}
	mergedDocument(t, h)
}

// TestBrokenDocuments checks that a document that cannot be built does not take the others away.
func TestBrokenDocuments(t *testing.T) {
	h := newHandler()
	failing := func() ([]byte, error) { return nil, errors.New("the schema is too odd") }
	for path, build := range map[string]func() ([]byte, error){"apis/a/v1": failing, "apis/b/v1": static("{"), "apis/c/v1": static(`{"paths":[]}`)} {
		if err := h.Put(path, "1", build, build); err != nil {
			t.Fatal(err)
		}
	}
	path, v3, v2 := thing(1, "a", &atomic.Int32{})
	if err := h.Put(path, "1", v3, v2); err != nil {
		t.Fatal(err)
	}
	definitions, etag := mergedDocument(t, h)
	if definitions["com.example.g1.v1.Thing"] == nil {
		t.Error("the documents of others are lost")
	}
	if r := send(h, "GET", "/openapi/v2", "If-None-Match: "+etag); r.StatusCode != 304 {
		t.Errorf("the ETag is not that of the next request: %s", r.Status)
	}
	r := send(h, "GET", listed(t, h)["apis/a/v1"])
	if b := body(t, r); r.StatusCode != 500 || r.Header.Get("Etag") != "" || r.Header.Get("Cache-Control") != "" || !bytes.Contains(b, []byte("apis/a/v1: the schema is too odd")) {
		t.Errorf("v3: %s, %s", r.Status, b)
	}
	if r := send(h, "GET", "/openapi/v3/apis/b/v1"); r.StatusCode != 500 {
		t.Errorf("v3 that is not JSON: %s", r.Status)
	}
	if err := h.Put("apis/a/v1", "2", static("{}"), nil); err != nil {
		t.Fatal(err)
	}
	if r := send(h, "GET", "/openapi/v3/apis/a/v1"); r.StatusCode != 200 || string(body(t, r)) != "{}" {
		t.Errorf("v3 when it is mended: %s", r.Status)
	}
}

// TestOverlap checks that of members with the same name only one is in the document: JSON must not have two.
func TestOverlap(t *testing.T) {
	h := newHandler()
	for i, v2 := range []string{
		`{"definitions":{"a":{"title":"1"},"io.k8s.api.core.v1.Pod":{"title":"1"},"b<":{"title":"1"}},"paths":{"/api/v1/pods":{}},"x":1}`,
		`{"definitions":{"a":{"title":"2"},"c":{"title":"2"},"b<":{"title":"2"}},"parameters":null}`,
		`{"definitions":{"a":{"title":"3"}}}`} {
		if err := h.Put(fmt.Sprint("part ", i), "1", nil, static(v2)); err != nil {
			t.Fatal(err)
		}
	}
	definitions, _ := mergedDocument(t, h)
	for name, want := range map[string]string{"a": "1", "b<": "1", "c": "2"} {
		if got := string(definitions[name]); got != fmt.Sprintf(`{"title":"%s"}`, want) {
			t.Errorf("%s is %s, want that of %s", name, got, want)
		}
	}
	data := body(t, send(h, "GET", "/openapi/v2"))
	for _, name := range []string{`"a":{"title"`, `"io.k8s.api.core.v1.Pod":`, `"/api/v1/pods":`} {
		if n := bytes.Count(data, []byte(name)); n != 1 {
			t.Errorf("%s is there %d times", name, n)
		}
	}
	if len(listed(t, h)["part 1"]) > 0 || send(h, "GET", "/openapi/v3/part%201").StatusCode != 404 {
		t.Error("a part without v3 is served")
	}
}

// TestKeptV3IsBounded checks that the documents that were not sent for the longest time are dropped.
func TestKeptV3IsBounded(t *testing.T) {
	now := noon()
	h := New(func() time.Time { return now })
	noise := make([]byte, 3<<20)
	state := uint32(1)
	for i := range noise { // does not compress well
		state = state*1664525 + 1013904223
		noise[i] = 'a' + byte(state>>27)%26
	}
	document := append(append([]byte(`"`), noise...), '"')
	for n := range 12 {
		if err := h.Put(fmt.Sprintf("apis/g%d/v1", n), "1", func() ([]byte, error) { return document, nil }, nil); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 12 {
		now = now.Add(time.Second)
		if r := send(h, "GET", fmt.Sprintf("/openapi/v3/apis/g%d/v1", n)); r.StatusCode != 200 {
			t.Fatal(r.Status)
		}
	}
	total := 0
	for _, a := range h.added {
		total += a.v3.bytes
	}
	if total > maxKeptV3 || total == 0 || h.added["apis/g11/v1"].v3.value == nil || h.added["apis/g0/v1"].v3.value != nil {
		t.Errorf("%d bytes are kept", total)
	}
	h.sweep.Stop()
}

// TestManyPathsAreCheap checks that putting and removing paths builds nothing and keeps nothing.
func TestManyPathsAreCheap(t *testing.T) {
	h := newHandler()
	var builds atomic.Int32
	started := time.Now()
	for generation := range 10 {
		for n := range 1000 {
			path, v3, v2 := thing(n, "a", &builds)
			if err := h.Put(path, fmt.Sprint(generation), v3, v2); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range 1000 {
		path, _, _ := thing(n, "a", &builds)
		h.Delete(path)
	}
	if d := time.Since(started); d > 5*time.Second {
		t.Errorf("11,000 changes took %s", d)
	}
	if builds.Load() != 0 || len(h.added) != 0 || h.sweep != nil {
		t.Errorf("%d documents were built, %d are left", builds.Load(), len(h.added))
	}
}

func TestSegments(t *testing.T) {
	long := strings.Repeat("all work and no play, ", 10_000)
	for _, test := range [][]string{{}, {""}, {"a"}, {"a", "b"}, {long}, {"", "a", long, "", long + "b", "c"}} {
		var segments []segment
		for _, s := range test {
			segments = append(segments, newSegment([]byte(s)))
		}
		d := joined("hash", segments)
		compressed, err := d.open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(compressed)
		if err != nil {
			t.Fatal(err)
		}
		r := &http.Response{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: io.NopCloser(bytes.NewReader(data))}
		if got := string(body(t, r)); got != strings.Join(test, "") || d.size != int64(len(got)) {
			t.Errorf("%.40q is %.40q", test, got)
		}
		for from := range min(len(data), 100) {
			compressed.Seek(int64(-from), io.SeekEnd)
			if rest, _ := io.ReadAll(compressed); !bytes.Equal(rest, data[len(data)-from:]) {
				t.Errorf("the last %d bytes differ", from)
			}
		}
	}
}

// BenchmarkV2 measures the first request for v2 after one of many definitions has changed, whose parts have about 40 kB each.
func BenchmarkV2(b *testing.B) {
	property := `"field%d":{"description":"what this field is for, in a sentence as people write them, number %d","type":"string"},`
	var properties strings.Builder
	for i := range 80 {
		fmt.Fprintf(&properties, property, i, i*i)
	}
	for _, count := range []int{1, 500, 1000} {
		for name, accept := range map[string]string{"JSON": "application/json", "protobuf": v2Asked} {
			b.Run(fmt.Sprintf("%d/%s", count, name), func(b *testing.B) {
				h := newHandler()
				put := func(n, generation int) {
					v2 := fmt.Sprintf(`{"paths":{"/apis/g%d.example.com/v1/things":{"get":{"description":%q,"responses":{"200":{"description":"OK"}}}}},
						"definitions":{"com.example.g%d.v1.Thing":{"properties":{%s"n":{"type":"integer"}},"description":"%d"}}}`,
						n, strings.Repeat("list things ", 2000), n, properties.String(), generation)
					if err := h.Put(fmt.Sprintf("apis/g%d.example.com/v1", n), fmt.Sprint(generation), nil, static(v2)); err != nil {
						b.Fatal(err)
					}
				}
				for n := range count {
					put(n, 0)
				}
				r := httptest.NewRequest("GET", "/openapi/v2", nil)
				r.Header.Set("Accept-Encoding", "gzip")
				r.Header.Set("Accept", accept)
				serve := func() { h.ServeHTTP(discard{http.Header{}}, r) }
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				started := time.Now()
				serve()
				first := time.Since(started)
				runtime.GC()
				runtime.ReadMemStats(&after)
				retained := float64(after.HeapAlloc) - float64(before.HeapAlloc)
				b.ReportAllocs()
				generation := 0
				for b.Loop() {
					generation++
					put(0, generation)
					serve()
				}
				b.ReportMetric(retained/1024, "retained-kB")
				b.ReportMetric(float64(first.Microseconds())/1000, "first-ms")
			})
		}
	}
}
