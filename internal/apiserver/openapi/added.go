package openapi

import (
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// What the handler keeps of added documents. It can build them again at any time.
const (
	// idle is how long a document is kept after it was last sent.
	idle = 10 * time.Minute
	// maxKeptV3 bounds the bytes of all kept v3 documents, compressed. Beyond, those are dropped that were not sent for the longest time.
	maxKeptV3 = 16 << 20
	// maxKeptV2 bounds the bytes that are kept of v2. If there are more, all are dropped as soon as the response is sent.
	maxKeptV2 = 64 << 20
)

// addition holds the documents of a custom resource or an aggregated server. It is not modified after it was added, but for what is kept.
type addition struct {
	path, hash       string
	at               time.Time
	buildV3, buildV2 func() ([]byte, error) // nil if there is none

	// v3 and v2 are shared with the addition that replaces this one, if its hash is the same.
	v3 *kept[document]
	v2 *kept[part]
}

// kept is something that was built, or nothing.
type kept[T any] struct {
	building sync.Mutex // held while it is built, so that concurrent requests build it once

	// The others are guarded by the handler's mutex.
	value *T
	bytes int
	used  time.Time
	err   error // why it cannot be built; with another hash, it may be
}

// Put adds documents, or replaces those that were put. hash is any string that changes when the documents do, such as the UID and generation
// of a definition: with the same hash, nothing changes for clients. The documents are JSON. They are built at the first request for them, and
// dropped some time after the last, so Put is cheap; the functions may be called at any time, but not twice at once.
//
// v3 is served as /openapi/v3/<path>, where path is such as "apis/example.com/v1". The paths, definitions and parameters of v2 are merged
// into the OpenAPI v2 document; those whose names exist there are left out. Of equal names in several additions the first is kept, in the order
// of their paths. Either may be nil. If v3 is, the path is not served and can be any name: a definition may have a part of v2 of its own, so
// that its neighbours in the group version need not be built again when it changes. A built-in path cannot be replaced.
//
// If a document cannot be built, /openapi/v3/<path> answers with the error, and v2 lacks its part, until another hash is put.
func (h *Handler) Put(path, hash string, v3, v2 func() ([]byte, error)) error {
	if _, ok := builtinDocument(path); ok {
		return fmt.Errorf("the OpenAPI document %s is built in", path)
	}
	base, _ := builtinDocument(pathV2)
	a := &addition{path: path, hash: sum(base.hash, path, hash), at: h.now(), buildV3: v3, buildV2: v2, v3: &kept[document]{}, v2: &kept[part]{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.added[path]
	h.added[path] = a
	if old != nil && old.hash == a.hash && (old.buildV2 == nil) == (v2 == nil) && (old.buildV3 == nil) == (v3 == nil) {
		a.at, a.v3, a.v2 = old.at, old.v3, old.v2
		h.order = nil
		return nil
	}
	if v2 != nil || old != nil && old.buildV2 != nil {
		h.changeV2(a.at)
	}
	return nil
}

// Delete removes the documents that were put at the path.
func (h *Handler) Delete(path string) {
	at := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.added[path]
	delete(h.added, path)
	if old != nil && old.buildV2 != nil {
		h.changeV2(at)
	}
}

// changeV2 forgets what depends on all parts of v2.
func (h *Handler) changeV2(at time.Time) {
	h.order, h.merged, h.changed = nil, [forms]*lastModified{}, at
}

// builtV3 returns the v3 document of an addition.
func (h *Handler) builtV3(a *addition) (document, error) {
	d, err := build(h, a.v3, func() (*document, int, error) {
		data, err := a.buildV3()
		if err == nil && !json.Valid(data) {
			err = errors.New("it is not JSON")
		}
		if err != nil {
			return nil, 0, fmt.Errorf("the OpenAPI v3 document %s: %w", a.path, err)
		}
		s := newSegment(data)
		d := joined(a.hash, []segment{s})
		return &d, len(s.data), nil
	})
	if err != nil {
		return document{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropOldestV3()
	return *d, nil
}

// partOf returns the part of v2 of an addition, without the members that the built-in document has.
func (h *Handler) partOf(a *addition, base *baseParts) (*part, error) {
	return build(h, a.v2, func() (*part, int, error) {
		data, err := a.buildV2()
		if err != nil {
			return nil, 0, err
		}
		p, err := newPart(data, base.has)
		if err != nil {
			return nil, 0, err
		}
		return p, p.retained(), nil
	})
}

// build returns what is kept, or calls f for it. An error is kept, too.
func build[T any](h *Handler, k *kept[T], f func() (*T, int, error)) (*T, error) {
	k.building.Lock()
	defer k.building.Unlock()
	h.mu.Lock()
	value, err := k.value, k.err
	k.used = h.now()
	h.mu.Unlock()
	if value != nil || err != nil {
		return value, err
	}
	value, size, err := f()
	h.mu.Lock()
	defer h.mu.Unlock()
	k.value, k.bytes, k.err = value, size, err
	h.armSweep()
	return value, err
}

// dropOldestV3 drops v3 documents until their bytes are within the bound by a quarter, so that it has nothing to do for the next ones.
func (h *Handler) dropOldestV3() {
	total := 0
	for _, a := range h.added {
		total += a.v3.bytes
	}
	if total <= maxKeptV3 {
		return
	}
	for total > maxKeptV3*3/4 {
		var oldest *kept[document]
		for _, a := range h.added {
			if a.v3.value != nil && (oldest == nil || a.v3.used.Before(oldest.used)) {
				oldest = a.v3
			}
		}
		if oldest == nil {
			return
		}
		total -= oldest.bytes
		oldest.drop()
	}
}

func (k *kept[T]) drop() { k.value, k.bytes = nil, 0 }

// armSweep has dropIdle called after some time. The handler's mutex is held.
func (h *Handler) armSweep() {
	if h.sweep == nil {
		h.sweep = time.AfterFunc(idle/2, h.dropIdle)
	}
}

// dropIdle drops what was not sent for some time, and is called again as long as there is something to drop.
func (h *Handler) dropIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep = nil
	before := h.now().Add(-idle)
	if h.usedV2.Before(before) {
		h.dropV2()
	}
	some := h.base != nil
	for _, a := range h.added {
		if a.v3.used.Before(before) {
			a.v3.drop()
		}
		if a.v2.used.Before(before) && h.usedV2.Before(before) {
			a.v2.drop()
		}
		some = some || a.v3.value != nil || a.v2.value != nil
	}
	if some {
		h.armSweep()
	}
}

// dropV2 drops all that is kept of v2. The handler's mutex is held.
func (h *Handler) dropV2() {
	h.base, h.merged = nil, [forms]*lastModified{}
	for _, a := range h.added {
		a.v2.drop()
	}
}

// sum returns a hash of some strings.
func sum(words ...string) string {
	s := sha512.New()
	for _, word := range words {
		fmt.Fprintf(s, "%d:%s,", len(word), word)
	}
	return fmt.Sprintf("%X", s.Sum(nil))
}
