package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"skiff/internal/apiserver/openapi/gnostic"
)

// section is one of the objects of an OpenAPI v2 document to which parts add members.
type section int

const (
	paths section = iota
	definitions
	parameters
	sections
)

var sectionNames = [sections]string{"paths", "definitions", "parameters"}

// part is what an added document contributes to the OpenAPI v2 document: members of its sections.
type part struct {
	// names has the members' names, hashed, in the order in which they are in the segment.
	names [sections][]uint64
	// json has the members as they are in JSON, each with a comma before it.
	json [sections]segment
	// protobuf is a message with the members and nothing else; nil until the first request for this form. Of concatenated messages, which
	// is how messages are merged, maps have the entries of all.
	protobuf *segment
}

// hashOf returns the 64-bit FNV-1a hash of a name.
func hashOf(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// newPart returns the part of a JSON document, without members whose names are taken. Other members than the sections are left out.
func newPart(document []byte, taken func(section, uint64) bool) (*part, error) {
	if !json.Valid(document) {
		return nil, errors.New("it is not JSON")
	}
	content, names, err := members(document, taken)
	if err != nil {
		return nil, err
	}
	p := &part{names: names}
	for s := range sections {
		p.json[s] = newSegment(content[s])
	}
	return p, nil
}

// members returns the members of each section of a document whose names are not taken, as they are in part.json, and their names.
func members(document []byte, taken func(section, uint64) bool) (content [sections][]byte, names [sections][]uint64, err error) {
	err = gnostic.Members(document, func(name string, value []byte) error {
		s := section(slices.Index(sectionNames[:], name))
		if s < 0 || string(value) == "null" {
			return nil
		}
		if value[0] != '{' {
			return fmt.Errorf("%s is not an object", name)
		}
		return gnostic.Members(value, func(name string, value []byte) error {
			hash := hashOf(name)
			if taken(s, hash) {
				return nil
			}
			key, err := json.Marshal(name)
			content[s] = append(append(append(append(content[s], ','), key...), ':'), value...)
			names[s] = append(names[s], hash)
			return err
		})
	})
	return content, names, err
}

// sectionsOf returns a document with nothing but sections, of which content has the members.
func sectionsOf(content [sections][]byte) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for s, name := range sectionNames {
		if s > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:{", name)
		b.Write(bytes.TrimPrefix(content[s], []byte{','}))
		b.WriteByte('}')
	}
	b.WriteByte('}')
	return b.Bytes()
}

// document returns the part as a document with nothing but its sections.
func (p *part) document() ([]byte, error) {
	var content [sections][]byte
	for s := range sections {
		var err error
		if content[s], err = p.json[s].content(); err != nil {
			return nil, err
		}
	}
	return sectionsOf(content), nil
}

// encoded returns the protobuf form of the part.
func (p *part) encoded() (segment, error) {
	if p.protobuf == nil {
		document, err := p.document()
		if err != nil {
			return segment{}, err
		}
		message, err := gnostic.V2(document)
		if err != nil {
			return segment{}, err
		}
		s := newSegment(message)
		p.protobuf = &s
	}
	return *p.protobuf, nil
}

// without returns the part without the members whose names are taken, and marks those of its own as taken.
func (p *part) without(taken *[sections]map[uint64]bool) (*part, error) {
	overlap := false
	for s := range sections {
		overlap = overlap || slices.ContainsFunc(p.names[s], func(name uint64) bool { return taken[s][name] })
	}
	rest := p
	if overlap {
		var err error
		if rest, err = p.filtered(taken); err != nil {
			return nil, err
		}
	}
	for s := range sections {
		for _, name := range rest.names[s] {
			taken[s][name] = true
		}
	}
	return rest, nil
}

func (p *part) filtered(taken *[sections]map[uint64]bool) (*part, error) {
	document, err := p.document()
	if err != nil {
		return nil, err
	}
	return newPart(document, func(s section, name uint64) bool { return taken[s][name] })
}

// retained returns about how many bytes the part keeps in memory.
func (p *part) retained() int {
	n := 0
	for s := range sections {
		n += 8*len(p.names[s]) + len(p.json[s].data)
	}
	if p.protobuf != nil {
		n += len(p.protobuf.data)
	}
	return n
}
