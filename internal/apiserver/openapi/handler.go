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

	mu      sync.Mutex // held for short times only, never while something is built
	added   map[string]*addition
	order   []*addition // those with a part of v2, sorted by path; nil after a change
	version string      // the hash of v2 with them
	changed time.Time
	// merged are the forms of v2 with the additions; nil until the first request after a change.
	merged [forms]*lastModified
	base   *baseParts // nil until it is needed
	usedV2 time.Time
	sweep  *time.Timer // calls dropIdle; nil if nothing is kept

	merging sync.Mutex // held while v2 is merged, so that concurrent requests merge it once
}

type lastModified struct {
	document
	at time.Time
}

// New returns a handler of the built-in documents.
func New(now func() time.Time) *Handler {
	return &Handler{now: now, started: now(), changed: now(), added: map[string]*addition{}}
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

// serveRoot lists the v3 documents. As upstream's, the response has the type plain text. It has an ETag instead of the time of the last change: two changes
// in the same second would look alike to a client that caches, which then misses a new definition.
func (h *Handler) serveRoot(w http.ResponseWriter, r *http.Request) {
	type reference struct {
		ServerRelativeURL string `json:"serverRelativeURL"`
	}
	paths := map[string]reference{}
	h.mu.Lock()
	for path, a := range h.added {
		if a.buildV3 != nil {
			paths[path] = reference{location(path, a.hash)}
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
	w.Header().Set("ETag", strconv.Quote(sum(string(body))))
	http.ServeContent(w, r, root, time.Time{}, bytes.NewReader(body))
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

// JSON returns the OpenAPI v3 document of a path such as "apis/example.com/v1", built-in or put.
func (h *Handler) JSON(path string) ([]byte, error) {
	found, ok := h.v3(path)
	if !ok {
		return nil, fmt.Errorf("there is no OpenAPI v3 document %q", path)
	}
	d := found.document
	if d.build != nil {
		var err error
		if d, err = d.build(); err != nil {
			return nil, err
		}
	}
	return d.json()
}

// v3 returns a document without building it: it is built when it is opened.
func (h *Handler) v3(path string) (lastModified, bool) {
	if d, ok := builtinDocument(path); ok && path != pathV2 {
		return lastModified{d, h.started}, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.added[path]
	if !ok || a.buildV3 == nil {
		return lastModified{}, false
	}
	return lastModified{document{hash: a.hash, build: func() (document, error) { return h.builtV3(a) }}, a.at}, true
}

func (h *Handler) serveV2(w http.ResponseWriter, r *http.Request) {
	f := negotiate(w, r, "v2")
	if f == notAcceptable {
		return
	}
	d := h.v2(f)
	if d.encoded {
		d.serve(w, r, jsonForm, nil) // the document is of that form: nothing is to be encoded
		return
	}
	d.serve(w, r, f, gnostic.V2)
}

// form is the encoding in which a document is sent.
type form int

const (
	notAcceptable form = iota
	jsonForm
	protobufForm
	forms
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
	tag := strconv.Quote(d.hash)
	w.Header().Set("Etag", tag)
	if r.Header.Get("If-None-Match") == tag { // the answer has no body: do not build the document
		http.ServeContent(w, r, "", d.at, strings.NewReader(""))
		return
	}
	if d.build != nil {
		built, err := d.build()
		if err != nil {
			for _, name := range []string{"Etag", "Cache-Control", "Expires"} {
				w.Header().Del(name)
			}
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		d.document = built
		w.Header().Set("Etag", strconv.Quote(d.hash))
	}
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
