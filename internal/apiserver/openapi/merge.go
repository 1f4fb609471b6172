package openapi

import (
	"slices"
	"strings"

	"skiff/internal/apiserver/openapi/gnostic"
)

// baseParts is the built-in OpenAPI v2 document, cut where members can be added.
type baseParts struct {
	names [sections][]uint64 // sorted
	// json are the pieces of the document: after each but the last, members of a section can follow.
	json     [sections + 1]segment
	order    [sections]section // of which section, after each piece
	protobuf *segment          // nil until the first request for this form
}

func newBase(d document) (*baseParts, error) {
	data, err := d.json()
	if err != nil {
		return nil, err
	}
	b := &baseParts{}
	if _, b.names, err = members(data, func(section, uint64) bool { return false }); err != nil {
		return nil, err
	}
	for s := range sections {
		slices.Sort(b.names[s])
	}
	var ends []int // of the sections, before the closing bracket
	err = gnostic.Members(data, func(name string, value []byte) error {
		if s := section(slices.Index(sectionNames[:], name)); s >= 0 {
			b.order[len(ends)] = s
			ends = append(ends, cap(data)-cap(value)+len(value)-1)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	start := 0
	for i, end := range append(ends, len(data)) {
		b.json[i] = newLargeSegment(data[start:end])
		start = end
	}
	return b, nil
}

// has reports whether the document has a member.
func (b *baseParts) has(s section, name uint64) bool {
	_, found := slices.BinarySearch(b.names[s], name)
	return found
}

// v2 returns the OpenAPI v2 document in a form. With additions, it is merged when it is built; the form of a merged document is its own.
func (h *Handler) v2(f form) lastModified {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.additionsOfV2()
	if len(all) == 0 {
		d, _ := builtinDocument(pathV2)
		return lastModified{d, h.started}
	}
	d := document{hash: h.version, encoded: f == protobufForm, build: func() (document, error) { return h.mergedV2(f) }}
	return lastModified{d, h.changed}
}

// additionsOfV2 returns the additions that have a part of v2, sorted by path. The handler's mutex is held.
func (h *Handler) additionsOfV2() []*addition {
	if h.order != nil {
		return h.order
	}
	for _, a := range h.added {
		if a.buildV2 != nil {
			h.order = append(h.order, a)
		}
	}
	slices.SortFunc(h.order, func(a, b *addition) int { return strings.Compare(a.path, b.path) })
	h.version = versionOf(h.order)
	return h.order
}

// versionOf returns the hash of v2 with additions. A part that cannot be built is left out of the document, and of the hash.
func versionOf(all []*addition) string {
	base, _ := builtinDocument(pathV2)
	words := []string{base.hash}
	for _, a := range all {
		if a.v2.err == nil {
			words = append(words, a.hash)
		}
	}
	return sum(words...)
}

// mergedV2 returns a form of v2 with the additions. It is merged by the first request, and kept until a document is put or deleted.
func (h *Handler) mergedV2(f form) (document, error) {
	h.merging.Lock()
	defer h.merging.Unlock()
	h.mu.Lock()
	h.usedV2 = h.now()
	all, merged, base, at := h.additionsOfV2(), h.merged[f], h.base, h.changed
	h.mu.Unlock()
	if merged != nil {
		return merged.document, nil
	}
	if base == nil {
		var err error
		d, _ := builtinDocument(pathV2)
		if base, err = newBase(d); err != nil {
			return document{}, err
		}
	}
	parts, err := h.parts(base, all)
	if err != nil {
		return document{}, err
	}
	var segments []segment
	if f == protobufForm {
		segments, err = base.withProtobuf(parts)
	} else {
		segments = base.with(parts)
	}
	if err != nil {
		return document{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d := joined(versionOf(all), segments)
	d.encoded = f == protobufForm
	h.keepV2(f, base, all, lastModified{d, at})
	return d, nil
}

// keepV2 keeps a form of v2 unless an addition has changed since, or it is too large. The handler's mutex is held.
func (h *Handler) keepV2(f form, base *baseParts, all []*addition, d lastModified) {
	h.base = base
	if slices.Equal(all, h.order) {
		h.merged[f], h.version = &d, d.hash
	}
	size := base.retained()
	for _, a := range h.added {
		if a.v2.value != nil {
			a.v2.bytes = a.v2.value.retained()
		}
		size += a.v2.bytes
	}
	if size > maxKeptV2 {
		h.dropV2()
		return
	}
	h.armSweep()
}

// parts returns the parts of the additions, each without the members that an earlier part has; what the document has, no part has. What cannot be built is left
// out: a broken definition must not take the documents of all others away.
func (h *Handler) parts(base *baseParts, all []*addition) ([]*part, error) {
	var taken [sections]map[uint64]bool
	for s := range sections {
		taken[s] = make(map[uint64]bool, 4*len(all))
	}
	parts := make([]*part, 0, len(all))
	for _, a := range all {
		p, err := h.partOf(a, base)
		if err != nil {
			continue
		}
		if p, err = p.without(&taken); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// with returns the pieces of the document in JSON with the members of all parts.
func (b *baseParts) with(parts []*part) []segment {
	segments := make([]segment, 0, len(b.json)+len(parts)*int(sections))
	for i, piece := range b.json {
		segments = append(segments, piece)
		if i == len(b.order) {
			break
		}
		for _, p := range parts {
			segments = append(segments, p.json[b.order[i]])
		}
	}
	return segments
}

// withProtobuf returns the pieces of the document in protobuf, followed by those of all parts.
func (b *baseParts) withProtobuf(parts []*part) ([]segment, error) {
	if b.protobuf == nil {
		d, _ := builtinDocument(pathV2)
		data, err := d.json()
		if err != nil {
			return nil, err
		}
		if data, err = gnostic.V2(data); err != nil {
			return nil, err
		}
		s := newLargeSegment(data)
		b.protobuf = &s
	}
	segments := []segment{*b.protobuf}
	for _, p := range parts {
		s, err := p.encoded()
		if err != nil { // gnostic's messages cannot express it
			continue
		}
		segments = append(segments, s)
	}
	return segments, nil
}

func (b *baseParts) retained() int {
	n := 0
	for _, s := range b.json {
		n += len(s.data)
	}
	for s := range sections {
		n += 8 * len(b.names[s])
	}
	if b.protobuf != nil {
		n += len(b.protobuf.data)
	}
	return n
}
