package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/munnerz/goautoneg"

	"skiff/internal/apiserver/openapi/gnostic"
)

// Handler serves /openapi/v2, /openapi/v3 and everything below the latter.
type Handler struct {
	now     func() time.Time
	started time.Time // the modification time of the built-in documents

	mu       sync.Mutex
	added    map[string]addition
	changes  int           // number of changes of added
	mergedV2 *lastModified // v2 with the additions; nil if there are none, or until the first request after a change

	merging sync.Mutex // held while v2 is merged, so that concurrent requests merge it once
}

type lastModified struct {
	document
	at time.Time
}

// addition holds the documents of a custom resource or an aggregated server: a v3 document, and its part of v2.
type addition struct {
	v3, v2 *document
	at     time.Time
}

// New returns a handler of the built-in documents.
func New(now func() time.Time) *Handler {
	return &Handler{now: now, started: now(), added: map[string]addition{}}
}

// Put adds a JSON document, or replaces one that was put. v3 is served as /openapi/v3/<path>, where path is such as
// "apis/example.com/v1". The paths, definitions and parameters of v2 are merged into the OpenAPI v2 document; those whose names
// exist there are left out. Either may be nil. A built-in path cannot be replaced.
func (h *Handler) Put(path string, v3, v2 []byte) error {
	if _, ok := builtinDocument(path); ok {
		return fmt.Errorf("the OpenAPI document %s is built in", path)
	}
	a := addition{at: h.now()}
	if v3 != nil {
		if !json.Valid(v3) {
			return fmt.Errorf("the OpenAPI v3 document %s is not JSON", path)
		}
		d := compress(v3)
		a.v3 = &d
	}
	if v2 != nil {
		if err := json.Unmarshal(v2, &swagger{}); err != nil {
			return fmt.Errorf("the OpenAPI v2 document of %s: %w", path, err)
		}
		d := compress(v2)
		a.v2 = &d
	}
	h.change(func() { h.added[path] = a })
	return nil
}

// Delete removes the documents that were put at the path.
func (h *Handler) Delete(path string) {
	h.change(func() { delete(h.added, path) })
}

func (h *Handler) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.changes++
	h.mergedV2 = nil
}

const root = "/openapi/v3"

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/openapi/v2":
		h.serveV2(w, r)
	case path == root:
		h.serveRoot(w, r)
	case strings.HasPrefix(path, root+"/"):
		h.serveV3(w, r, strings.TrimPrefix(path, root+"/"))
	default:
		http.NotFound(w, r)
	}
}

// serveRoot lists the v3 documents. As upstream's, the response has the type plain text and no ETag.
func (h *Handler) serveRoot(w http.ResponseWriter, r *http.Request) {
	type reference struct {
		ServerRelativeURL string `json:"serverRelativeURL"`
	}
	paths := map[string]reference{}
	h.mu.Lock()
	for path, a := range h.added {
		if a.v3 != nil {
			paths[path] = reference{location(path, a.v3.hash)}
		}
	}
	h.mu.Unlock()
	for _, e := range builtin {
		if e.path != pathV2 {
			paths[e.path] = reference{location(e.path, e.hash)}
		}
	}
	body, err := json.Marshal(map[string]any{"paths": paths})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, root, h.now(), bytes.NewReader(body))
}

func location(path, hash string) string {
	u := url.URL{Path: root + "/" + path, RawQuery: url.Values{"hash": {hash}}.Encode()}
	return u.String()
}

func (h *Handler) serveV3(w http.ResponseWriter, r *http.Request, path string) {
	d, ok := h.v3(path)
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	form := negotiate(w, r, "v3")
	if form == notAcceptable {
		return
	}
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != d.hash {
			w.Header().Set("Etag", strconv.Quote(d.hash))
			http.Redirect(w, r, location(path, d.hash), http.StatusMovedPermanently)
			return
		}
		// A document at a URL with this hash never changes.
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", h.now().AddDate(1, 0, 0).Format(time.RFC1123))
	}
	d.serve(w, r, form, gnostic.V3)
}

func (h *Handler) v3(path string) (lastModified, bool) {
	if d, ok := builtinDocument(path); ok && path != pathV2 {
		return lastModified{d, h.started}, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.added[path]
	if !ok || a.v3 == nil {
		return lastModified{}, false
	}
	return lastModified{*a.v3, a.at}, true
}

func (h *Handler) serveV2(w http.ResponseWriter, r *http.Request) {
	form := negotiate(w, r, "v2")
	if form == notAcceptable {
		return
	}
	d, err := h.v2()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	d.serve(w, r, form, gnostic.V2)
}

// v2 returns the merged OpenAPI v2 document. It is merged by the first request, and kept until a document is put or deleted.
func (h *Handler) v2() (lastModified, error) {
	h.merging.Lock()
	defer h.merging.Unlock()
	base, _ := builtinDocument(pathV2)
	merged, parts, changes := h.partsOfV2()
	switch {
	case merged != nil:
		return *merged, nil
	case len(parts) == 0:
		return lastModified{base, h.started}, nil
	}
	d, err := mergeV2(base, parts)
	if err != nil {
		return lastModified{}, err
	}
	merged = &lastModified{d, h.now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changes == changes {
		h.mergedV2 = merged
	}
	return *merged, nil
}

func (h *Handler) partsOfV2() (merged *lastModified, parts map[string]*document, changes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts = map[string]*document{}
	for path, a := range h.added {
		if a.v2 != nil {
			parts[path] = a.v2
		}
	}
	return h.mergedV2, parts, h.changes
}

// form is the encoding in which a document is sent.
type form int

const (
	notAcceptable form = iota
	jsonForm
	protobufForm
)

// negotiate returns the form that the client accepts and sets the Content-Type. If there is none, it responds with 406.
func negotiate(w http.ResponseWriter, r *http.Request, version string) form {
	w.Header().Add("Vary", "Accept-Encoding")
	w.Header().Add("Vary", "Accept")
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	protobuf := "com.github.proto-openapi.spec." + version + ".v1.0+protobuf"
	deprecated := "com.github.proto-openapi.spec." + version + "@v1.0+protobuf" // not a valid media type, but clients use it
	for _, clause := range goautoneg.ParseAccept(accept) {
		if clause.Type != "application" && clause.Type != "*" {
			continue
		}
		switch clause.SubType {
		case "json", "*":
			w.Header().Set("Content-Type", "application/json")
			return jsonForm
		case protobuf, deprecated:
			w.Header().Set("Content-Type", "application/"+protobuf)
			return protobufForm
		}
	}
	w.WriteHeader(http.StatusNotAcceptable)
	return notAcceptable
}

// serve sends a document with http.ServeContent, which handles ETag, conditions and ranges. Both forms have the ETag of the
// JSON, which is correct because of the Vary header.
func (d lastModified) serve(w http.ResponseWriter, r *http.Request, f form, encode func([]byte) ([]byte, error)) {
	w.Header().Set("Etag", strconv.Quote(d.hash))
	zip := acceptsGzip(r) && r.Header.Get("Range") == ""
	var content io.ReadSeeker
	switch {
	case f == jsonForm && zip:
		compressed, err := d.open()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		content = compressed
		if size, err := compressed.Seek(0, io.SeekEnd); err == nil { // ServeContent does not set it for encoded content
			w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		}
	case f == jsonForm:
		content = &inflating{document: d.document}
	default:
		content = &onDemand{make: func() ([]byte, error) { return d.protobuf(encode, zip) }}
	}
	if zip {
		w.Header().Set("Content-Encoding", "gzip")
	}
	http.ServeContent(w, r, "", d.at, content)
}

func (d document) protobuf(encode func([]byte) ([]byte, error), zip bool) ([]byte, error) {
	data, err := d.json()
	if err != nil {
		return nil, err
	}
	if data, err = encode(data); err != nil || !zip {
		return data, err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w.Write(data) // a Buffer takes everything
	err = w.Close()
	return b.Bytes(), err
}

func acceptsGzip(r *http.Request) bool {
	for _, clause := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		coding, quality, _ := strings.Cut(clause, ";")
		if strings.TrimSpace(coding) != "gzip" {
			continue
		}
		q := strings.TrimPrefix(strings.ReplaceAll(quality, " ", ""), "q=")
		weight, err := strconv.ParseFloat(q, 64)
		return err != nil || weight > 0
	}
	return false
}
