package managedfields

import "bytes"

// edit carries the outcome of a comparison over into one manager's field set, on its text: no tree is made of it. All of the text is
// read, and unless it is just what the library would write for that set, the edit fails.
type edit struct {
	comparison *comparison
	owner      bool // the manager comes to own what is set; otherwise it loses that

	in      []byte
	at      int // how far in is read
	out     []byte
	changed bool
	failed  bool
}

// run returns the new text, which is good until the next run, and whether it is another one.
func (e *edit) run(c *comparison, owner bool, p *part, text []byte) (out []byte, changed, ok bool) {
	*e = edit{comparison: c, owner: owner, in: text, out: append(e.out[:0], '{')}
	e.expect("{")
	e.members(p, root)
	e.out = append(e.out, '}')
	return e.out, e.changed, !e.failed && e.at == len(e.in)
}

// members copies the members of a set up to its closing brace, and puts those that are new in their places.
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

// member copies one member of a set that has changed, or something below it.
func (e *edit) member(element []byte, p *part, n int32) {
	owned := e.head()
	keeps := owned
	switch note := e.comparison.nodes[n].note; {
	case note == isSet && e.owner:
		keeps = true
	case note != nothing:
		keeps = false
	}
	e.changed = e.changed || keeps != owned
	m := e.open(element, keeps)
	e.members(p, n)
	e.close(m)
}

// add writes a member that the manager does not have yet, if it has come to own it or something below it.
func (e *edit) add(n int32) {
	if !e.owner {
		return
	}
	nodes := e.comparison.nodes
	m := e.open(nodes[n].element, nodes[n].note == isSet)
	for c := nodes[n].first; c != none; c = nodes[c].next {
		e.add(c)
	}
	e.close(m)
	e.changed = e.changed || len(e.out) > m.start
}

// skip reads a member as it is, from behind its name.
func (e *edit) skip(p *part) {
	if e.accept(":{}") { // most are so
		return
	}
	e.head()
	for r := (memberReader{edit: e, part: p}); r.more(); {
		e.skip(r.inner)
	}
}

// opened is a member that is being written: where it begins, where its brace has been opened, and where what is below it begins.
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

// itself says of a member that has others below it that it is owned too.
const itself = `".":{}`

// close ends a member. With nothing below it, it need not be said that it is owned; and if it is not, it goes.
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

// head reads how a member begins behind its name, and tells whether it is owned itself.
func (e *edit) head() (owned bool) {
	e.expect(":{")
	if e.accept(itself) {
		e.expect(`,"`) // alone it would not be written
		e.at--
		return true
	}
	return e.at < len(e.in) && e.in[e.at] == '}'
}

// accept reads a text if it comes next.
func (e *edit) accept(text string) bool {
	if end := e.at + len(text); end <= len(e.in) && string(e.in[e.at:end]) == text {
		e.at = end
		return true
	}
	return false
}

// expect reads what must come next.
func (e *edit) expect(text string) {
	e.failed = e.failed || !e.accept(text)
}

// memberReader reads the names of a set's members, which must be in order and such as the set can have.
type memberReader struct {
	edit   *edit
	part   *part
	fields int // of the part, that have been passed

	start   int // where the member begins
	element []byte
	inner   *part
}

// more reads the name of the next member, or the closing brace. It is not called before all of the last member has been read.
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

// field reads the name of a field, which must come after those that have been passed.
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

// item reads the name of an item, which must be greater than the last one.
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
