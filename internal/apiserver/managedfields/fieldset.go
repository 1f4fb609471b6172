package managedfields

import "bytes"

// edit applies the result of a comparison to the text of one manager's field set, without building a tree. It reads the whole text, and
// fails unless the text is exactly what the library would write for that set.
type edit struct {
	comparison *comparison
	owner      bool // the manager becomes the owner of what is set; otherwise it loses it

	in      []byte
	at      int // read position
	out     []byte
	changed bool
	failed  bool
}

// run returns the new text, which is valid until the next run, and whether it differs from the old one.
func (e *edit) run(c *comparison, owner bool, p *part, text []byte) (out []byte, changed, ok bool) {
	*e = edit{comparison: c, owner: owner, in: text, out: append(e.out[:0], '{')}
	e.expect("{")
	e.members(p, root)
	e.out = append(e.out, '}')
	return e.out, e.changed, !e.failed && e.at == len(e.in)
}

// members copies the members of a set up to its closing brace, and inserts the new ones in order.
func (e *edit) members(p *part, n int32) {
	nodes := e.comparison.nodes
	next := nodes[n].first
	for r := (memberReader{edit: e, part: p}); r.more(); {
		for next != none && compareElements(nodes[next].element, r.element) < 0 {
			e.add(next)
			next = nodes[next].next
		}
		if next != none && bytes.Equal(nodes[next].element, r.element) {
			e.member(r.element, r.inner, next)
			next = nodes[next].next
		} else {
			e.comma()
			e.skip(r.inner)
			e.out = append(e.out, e.in[r.start:e.at]...)
		}
	}
	for ; next != none; next = nodes[next].next {
		e.add(next)
	}
}

// member copies one member of a set that is changed, or has changed descendants.
func (e *edit) member(element []byte, p *part, n int32) {
	owned := e.head()
	keeps := owned
	switch change := e.comparison.nodes[n].change; {
	case change == isSet && e.owner:
		keeps = true
	case change != unchanged:
		keeps = false
	}
	e.changed = e.changed || keeps != owned
	m := e.open(element, keeps)
	e.members(p, n)
	e.close(m)
}

// add writes a member that the manager does not have yet, if it becomes the owner of it or of a descendant.
func (e *edit) add(n int32) {
	if !e.owner {
		return
	}
	nodes := e.comparison.nodes
	m := e.open(nodes[n].element, nodes[n].change == isSet)
	for c := nodes[n].first; c != none; c = nodes[c].next {
		e.add(c)
	}
	e.close(m)
	e.changed = e.changed || len(e.out) > m.start
}

// skip reads a member, from after its name.
func (e *edit) skip(p *part) {
	if e.accept(":{}") { // most members
		return
	}
	e.head()
	for r := (memberReader{edit: e, part: p}); r.more(); {
		e.skip(r.inner)
	}
}

// opened holds positions of a member that is being written: its start, after its opening brace, and where its children begin.
type opened struct{ start, brace, below int }

func (e *edit) open(element []byte, owned bool) (m opened) {
	m.start = len(e.out)
	e.comma()
	e.out = append(e.out, '"')
	e.out = append(e.out, element...)
	e.out = append(e.out, `":{`...)
	m.brace = len(e.out)
	if owned {
		e.out = append(e.out, itself...)
	}
	m.below = len(e.out)
	return m
}

func (e *edit) comma() {
	if e.out[len(e.out)-1] != '{' {
		e.out = append(e.out, ',')
	}
}

// itself marks a member with children as owned too.
const itself = `".":{}`

// close ends a member. A member without children is written without the mark if it is owned, and removed otherwise.
func (e *edit) close(m opened) {
	if len(e.out) == m.below {
		if m.below == m.brace {
			e.out = e.out[:m.start]
			return
		}
		e.out = e.out[:m.brace]
	}
	e.out = append(e.out, '}')
}

// head reads the beginning of a member after its name, and reports whether the member itself is owned.
func (e *edit) head() (owned bool) {
	e.expect(":{")
	if e.accept(itself) {
		e.expect(`,"`) // without children the mark is not written
		e.at--
		return true
	}
	return e.at < len(e.in) && e.in[e.at] == '}'
}

// accept reads the text if it comes next.
func (e *edit) accept(text string) bool {
	if end := e.at + len(text); end <= len(e.in) && string(e.in[e.at:end]) == text {
		e.at = end
		return true
	}
	return false
}

// expect reads the text, which must come next.
func (e *edit) expect(text string) {
	e.failed = e.failed || !e.accept(text)
}

// memberReader reads the names of a set's members, which must be in order and valid for the part.
type memberReader struct {
	edit   *edit
	part   *part
	fields int // number of the part's fields that were passed

	start   int // position of the member
	element []byte
	inner   *part
}

// more reads the name of the next member, or the closing brace. The previous member must have been read completely.
func (r *memberReader) more() bool {
	e := r.edit
	if e.accept("}") || e.failed {
		return false
	}
	if r.element != nil {
		e.expect(",")
	}
	r.start = e.at
	e.expect(`"`)
	if r.part.kind == structure {
		r.field()
	} else {
		r.item()
	}
	if r.inner == nil {
		e.failed = true
	}
	e.expect(`"`)
	return !e.failed
}

// field reads the name of a field, which must come after those that were passed.
func (r *memberReader) field() {
	r.inner = nil
	in := r.edit.in[r.edit.at:]
	for r.inner == nil && r.fields < len(r.part.fields) {
		f := &r.part.fields[r.fields]
		if n := len(f.element); len(in) > n && in[n] == '"' && string(in[:n]) == string(f.element) {
			r.element, r.inner = f.element, f.part
			r.edit.at += n
		}
		r.fields++
	}
}

// item reads the name of an item, which must be greater than the previous one.
func (r *memberReader) item() {
	e, last := r.edit, r.element
	start, end := e.at, e.at
	for end < len(e.in) && (plain[e.in[end]] || e.in[end] == '\\' && end+1 < len(e.in) && e.in[end+1] == '"' && e.in[start] != 'f') {
		if e.in[end] == '\\' {
			end++
		}
		end++
	}
	r.element, r.inner, e.at = e.in[start:end:end], nil, end
	if !valid(r.element) || last != nil && compareElements(last, r.element) >= 0 {
		return
	}
	switch kind := r.part.kind; {
	case kind == mapping && r.element[0] == 'f', kind == keyed && r.element[0] == 'k':
		r.inner = r.part.item
	case kind == set && r.element[0] == 'v':
		r.inner = &whole
	}
}
