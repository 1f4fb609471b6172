package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
)

const (
	v2Protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	v2Asked    = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	v3Protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	v3Asked    = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	batch      = "/openapi/v3/apis/batch/v1"
)

func noon() time.Time { return time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC) }

func newHandler() *Handler { return New(noon) }

// send sends a request whose headers are given as "Name: value".
func send(h http.Handler, method, path string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t testing.TB, r *http.Response) []byte {
	t.Helper()
	reader := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if reader, err = gzip.NewReader(r.Body); err != nil {
			t.Fatal(err)
		}
	}
	data, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func listed(t testing.TB, h http.Handler) map[string]string {
	t.Helper()
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(body(t, send(h, "GET", "/openapi/v3")), &root); err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for path, reference := range root.Paths {
		urls[path] = reference.ServerRelativeURL
	}
	return urls
}

func TestRootListsEveryDocumentByItsHash(t *testing.T) {
	h := newHandler()
	urls := listed(t, h)
	for _, path := range []string{"api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "apis/autoscaling/v2", "version",
		".well-known/openid-configuration", "openid/v1/jwks"} {
		if urls[path] == "" {
			t.Errorf("%s is not listed", path)
		}
	}
	for path, url := range urls {
		r := send(h, "GET", url)
		data := body(t, r)
		want := fmt.Sprintf("/openapi/v3/%s?hash=%X", path, sha512.Sum512(data))
		if r.StatusCode != 200 || url != want {
			t.Errorf("%s: %s, listed as %s, is %s", path, r.Status, url, want)
		}
	}
	r := send(h, "GET", "/openapi/v3", "Accept-Encoding: gzip", "Accept: text/html")
	if got := r.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("the list is %s, which upstream's is not", got)
	}
	if r.Header.Get("Last-Modified") != "" || send(h, "GET", "/openapi/v3", "If-None-Match: "+r.Header.Get("Etag")).StatusCode != 304 {
		t.Errorf("the list has the headers %v", r.Header)
	}
	if err := h.Put("apis/example.com/v1", "1", func() ([]byte, error) { return []byte(`{}`), nil }, nil); err != nil {
		t.Fatal(err)
	}
	if again := send(h, "GET", "/openapi/v3", "If-None-Match: "+r.Header.Get("Etag")); again.StatusCode != 200 {
		t.Errorf("a changed list is answered with %s", again.Status)
	}
}

// TestNegotiation compares the responses to Accept headers with upstream's.
func TestNegotiation(t *testing.T) {
	tests := []struct {
		path, accept, contentType string
	}{
		{"/openapi/v2", "", "application/json"},
		{"/openapi/v2", "*/*", "application/json"},
		{"/openapi/v2", "application/*", "application/json"},
		{"/openapi/v2", "application/json", "application/json"},
		{"/openapi/v2", v2Asked, v2Protobuf},
		{"/openapi/v2", v2Protobuf, v2Protobuf},
		{"/openapi/v2", "application/json;q=0.1, " + v2Asked, v2Protobuf},
		{"/openapi/v2", "text/html, */*;q=0.5", "application/json"},
		{"/openapi/v2", "text/html", ""},
		{"/openapi/v2", v3Asked, ""},
		{batch, "", "application/json"},
		{batch, "*/*", "application/json"},
		{batch, v3Asked, v3Protobuf},
		{batch, v3Protobuf, v3Protobuf},
		{batch, v2Asked, ""},
		{batch, "text/html", ""},
	}
	h := newHandler()
	for _, test := range tests {
		r := send(h, "GET", test.path, "Accept: "+test.accept)
		code := 200
		if test.contentType == "" {
			code = 406
		}
		if r.StatusCode != code || r.Header.Get("Content-Type") != test.contentType {
			t.Errorf("%s as %q: %s, %s", test.path, test.accept, r.Status, r.Header.Get("Content-Type"))
		}
		if vary := strings.Join(r.Header.Values("Vary"), ", "); vary != "Accept-Encoding, Accept" {
			t.Errorf("%s as %q varies by %q", test.path, test.accept, vary)
		}
	}
}

func TestForms(t *testing.T) {
	h := newHandler()
	tests := []struct {
		path, accept string
		document     proto.Message
	}{
		{"/openapi/v2", v2Asked, &openapi_v2.Document{}},
		{"/openapi/v3/api/v1", v3Asked, &openapi_v3.Document{}},
		{"/openapi/v3/version", v3Asked, &openapi_v3.Document{}},
	}
	for _, test := range tests {
		plain := send(h, "GET", test.path)
		data := body(t, plain)
		if length := plain.Header.Get("Content-Length"); length != fmt.Sprint(len(data)) {
			t.Errorf("%s has %d bytes and Content-Length %s", test.path, len(data), length)
		}
		zipped := send(h, "GET", test.path, "Accept-Encoding: br;q=1.0, gzip;q=0.8")
		if zipped.Header.Get("Content-Encoding") != "gzip" || zipped.Header.Get("Content-Length") == "" || !bytes.Equal(body(t, zipped), data) {
			t.Errorf("%s is different when compressed: %v", test.path, zipped.Header)
		}
		if r := send(h, "GET", test.path, "Accept-Encoding: gzip;q=0"); r.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is compressed against the client's will", test.path)
		}
		encoded := body(t, send(h, "GET", test.path, "Accept: "+test.accept))
		if err := proto.Unmarshal(encoded, test.document); err != nil {
			t.Errorf("%s: %v", test.path, err)
		}
		r := send(h, "GET", test.path, "Accept: "+test.accept, "Accept-Encoding: gzip")
		if r.Header.Get("Content-Encoding") != "gzip" || !bytes.Equal(body(t, r), encoded) {
			t.Errorf("%s in protobuf is different when compressed", test.path)
		}
	}
}

func TestETag(t *testing.T) {
	h := newHandler()
	for _, path := range []string{"/openapi/v2", batch} {
		etag := send(h, "GET", path).Header.Get("Etag")
		if want := fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(body(t, send(h, "GET", path))))); etag != want {
			t.Errorf("%s has ETag %s, want %s", path, etag, want)
		}
		for _, headers := range [][]string{{}, {"Accept-Encoding: gzip"}, {"Accept: " + v2Asked + ", " + v3Asked}} {
			r := send(h, "GET", path, append(headers, "If-None-Match: "+etag)...)
			if r.StatusCode != 304 || len(body(t, r)) > 0 || r.Header.Get("Etag") != etag {
				t.Errorf("%s %v: %s with the current ETag", path, headers, r.Status)
			}
			if r := send(h, "GET", path, append(headers, `If-None-Match: "old"`)...); r.StatusCode != 200 || r.Header.Get("Etag") != etag {
				t.Errorf("%s %v: %s with an old ETag", path, headers, r.Status)
			}
		}
		if r := send(h, "GET", path, "If-Modified-Since: "+noon().Format(http.TimeFormat)); r.StatusCode != 304 {
			t.Errorf("%s: %s though not modified since", path, r.Status)
		}
	}
}

func TestHash(t *testing.T) {
	h := newHandler()
	url := listed(t, h)["apis/batch/v1"]
	r := send(h, "GET", url)
	if r.StatusCode != 200 || r.Header.Get("Cache-Control") != "public, immutable" || r.Header.Get("Expires") != "Mon, 15 Nov 2027 12:00:00 UTC" {
		t.Errorf("with its hash: %s, %v", r.Status, r.Header)
	}
	if r := send(h, "GET", batch); r.Header.Get("Cache-Control") != "" || r.Header.Get("Expires") != "" {
		t.Errorf("without a hash it may be cached: %v", r.Header)
	}
	r = send(h, "GET", batch+"?hash=ABC&x=y", "Accept: "+v3Asked)
	if r.StatusCode != 301 || r.Header.Get("Location") != url || r.Header.Get("Etag") == "" || len(body(t, r)) > 0 {
		t.Errorf("with an old hash: %s, %v", r.Status, r.Header)
	}
	if r := send(h, "GET", batch+"?hash=ABC", "Accept: text/html"); r.StatusCode != 406 {
		t.Errorf("with an old hash and an impossible form: %s", r.Status)
	}
}

func TestPartsAndHeads(t *testing.T) {
	h := newHandler()
	whole := body(t, send(h, "GET", batch))
	for _, from := range []int{0, 10, 100_000, len(whole) - 11} {
		r := send(h, "GET", batch, fmt.Sprintf("Range: bytes=%d-%d", from, from+10), "Accept-Encoding: gzip")
		if r.StatusCode != 206 || !bytes.Equal(body(t, r), whole[from:from+11]) {
			t.Errorf("part from %d: %s", from, r.Status)
		}
	}
	if r := send(h, "GET", batch, "Range: bytes=5-9,0-3"); r.StatusCode != 206 || !bytes.Contains(body(t, r), whole[5:10]) {
		t.Errorf("two parts, the second before the first: %s", r.Status)
	}
	if r := send(h, "HEAD", batch); r.StatusCode != 200 || r.Header.Get("Content-Length") != fmt.Sprint(len(whole)) || len(body(t, r)) > 0 {
		t.Errorf("HEAD: %s, %v", r.Status, r.Header)
	}
	if r := send(h, "POST", batch); r.StatusCode != 200 || !bytes.Equal(body(t, r), whole) {
		t.Errorf("POST, which upstream does not mind: %s", r.Status)
	}
}

func TestNotFound(t *testing.T) {
	h := newHandler()
	for _, path := range []string{"/openapi", "/openapi/", "/openapi/v2/", "/openapi/v2/x", "/openapi/v4"} {
		if r := send(h, "GET", path); r.StatusCode != 404 || string(body(t, r)) != "404 page not found\n" {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	for _, path := range []string{"/openapi/v3/", "/openapi/v3/nope", batch + "/", "/openapi/v3/v2", "/openapi/v3/apis/batch/v2"} {
		if r := send(h, "GET", path); r.StatusCode != 404 || len(body(t, r)) > 0 || r.Header.Get("Content-Type") != "" {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
}

func TestPut(t *testing.T) {
	const (
		path = "apis/example.com/v1"
		v3   = `{"openapi":"3.0.0","info":{"title":"Kubernetes","version":"1.37"},"paths":{"/apis/example.com/v1/":{}}}`
		v2   = `{"swagger":"2.0","info":{"title":"x","version":"1"},"paths":{"/apis/example.com/v1/":{"get":{"responses":{"200":{"description":"a < b"}}}}},
			"definitions":{"com.example.v1.Thing":{"type":"object"},"io.k8s.api.core.v1.Pod":{"description":"not this one"}}}`
	)
	now := noon()
	h := New(func() time.Time { return now })
	builtin := send(h, "GET", "/openapi/v2").Header.Get("Etag")

	now = noon().Add(time.Hour)
	if err := h.Put(path, "1", static(v3), static(v2)); err != nil {
		t.Fatal(err)
	}
	r := send(h, "GET", listed(t, h)[path])
	if got := string(body(t, r)); got != v3 || r.Header.Get("Last-Modified") != now.Format(http.TimeFormat) {
		t.Errorf("v3 of what was put: %s, %v, %s", r.Status, r.Header, got)
	}
	if err := proto.Unmarshal(body(t, send(h, "GET", "/openapi/v3/"+path, "Accept: "+v3Asked)), &openapi_v3.Document{}); err != nil {
		t.Error(err)
	}

	r = send(h, "GET", "/openapi/v2")
	var merged struct {
		Swagger              string
		Paths, Definitions   map[string]any
		Parameters, Security any
	}
	data := body(t, r)
	if err := json.Unmarshal(data, &merged); err != nil {
		t.Fatal(err)
	}
	if merged.Paths["/apis/example.com/v1/"] == nil || merged.Paths["/api/v1/pods"] == nil || merged.Definitions["com.example.v1.Thing"] == nil ||
		merged.Swagger != "2.0" || merged.Parameters == nil || merged.Security == nil || !bytes.Contains(data, []byte("a < b")) {
		t.Error("v2 lacks what was put, or what was there before")
	}
	if strings.Contains(fmt.Sprint(merged.Definitions["io.k8s.api.core.v1.Pod"]), "not this one") {
		t.Error("what was put has replaced a built-in definition")
	}
	etag := r.Header.Get("Etag")
	if etag == builtin || len(etag) != len(builtin) {
		t.Errorf("v2 has ETag %s", etag)
	}
	if r := send(h, "GET", "/openapi/v2", "If-None-Match: "+etag); r.StatusCode != 304 {
		t.Errorf("v2 with additions, unchanged: %s", r.Status)
	}
	document := &openapi_v2.Document{}
	if err := proto.Unmarshal(body(t, send(h, "GET", "/openapi/v2", "Accept: "+v2Asked)), document); err != nil {
		t.Error(err)
	}
	if n := len(document.Definitions.AdditionalProperties); n != len(merged.Definitions) {
		t.Errorf("v2 in protobuf has %d definitions, in JSON %d", n, len(merged.Definitions))
	}

	h.Delete(path)
	if got := send(h, "GET", "/openapi/v2").Header.Get("Etag"); got != builtin {
		t.Errorf("after deletion v2 has ETag %s", got)
	}
	if r := send(h, "GET", "/openapi/v3/"+path); r.StatusCode != 404 || listed(t, h)[path] != "" {
		t.Errorf("after deletion v3 is there: %s", r.Status)
	}
}

func TestPutRefuses(t *testing.T) {
	h := newHandler()
	for _, path := range []string{"apis/apps/v1", "v2"} {
		if err := h.Put(path, "1", static("{}"), static("{}")); err == nil {
			t.Errorf("%s is taken", path)
		}
	}
}

func TestJSON(t *testing.T) {
	data, err := JSON("apis/apps/v1")
	if err != nil || !bytes.Contains(data, []byte(`"io.k8s.api.apps.v1.Deployment"`)) {
		t.Errorf("%v, %.100s", err, data)
	}
	for _, path := range []string{"", "v2", "apis/apps/v9"} {
		if _, err := JSON(path); err == nil {
			t.Errorf("%q has a document", path)
		}
	}
}

// TestNothingToDoAtStart checks that the packages have no initialization, which the runtime would report.
func TestNothingToDoAtStart(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(trace), "init runtime ") {
		t.Fatalf("%v\n%s", err, trace)
	}
	for _, line := range strings.Split(string(trace), "\n") {
		if strings.HasPrefix(line, "init skiff/internal/apiserver/openapi") {
			t.Error(line)
		}
	}
}

func BenchmarkServe(b *testing.B) {
	h := newHandler()
	for _, test := range []struct {
		name, path string
		headers    []string
	}{
		{"v3 JSON", "/openapi/v3/api/v1", nil},
		{"v3 JSON gzip", "/openapi/v3/api/v1", []string{"Accept-Encoding: gzip"}},
		{"v3 protobuf", "/openapi/v3/api/v1", []string{"Accept: " + v3Asked}},
		{"v2 JSON", "/openapi/v2", nil},
		{"v2 protobuf", "/openapi/v2", []string{"Accept: " + v2Asked}},
		{"v2 protobuf gzip", "/openapi/v2", []string{"Accept: " + v2Asked, "Accept-Encoding: gzip"}},
		{"root", "/openapi/v3", nil},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("GET", test.path, nil)
			for _, header := range test.headers {
				name, value, _ := strings.Cut(header, ": ")
				r.Header.Set(name, value)
			}
			for b.Loop() {
				h.ServeHTTP(discard{http.Header{}}, r)
			}
		})
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
