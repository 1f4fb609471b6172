package managedfields

import (
	"bytes"
	"cmp"
	"reflect"
	"strconv"
)

// Managed fields are written as JSON: an object per value, whose names identify the parts of the value. Such a name is an element:
//
//	f:replicas               a field, or a key of a map
//	k:{\"name\":\"web\"}     an item of a keyed list
//	v:\"kubernetes.io/x\"    an item of a set
//
// Elements are kept as they are in that JSON, between its quotes, so that they are found by comparing bytes. This package handles only
// elements of plain characters, which JSON does not escape.

// plain are the characters that no JSON encoder escapes.
var plain = func() (set [256]bool) {
	for c := ' '; c <= '~'; c++ {
		set[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return set
}()

func allPlain[T string | []byte](s T) bool {
	for i := range len(s) {
		if !plain[s[i]] {
			return false
		}
	}
	return true
}

// appendKey appends the element of an item of a keyed list. It returns nil if the element is not plain or the item has no key.
func (p *part) appendKey(b []byte, item reflect.Value) []byte {
	b = append(b, "k:{"...)
	start := len(b)
	for i := range p.keys {
		key := &p.keys[i]
		v := key.field.of(item)
		if key.field.json.CanOmit(v) {
			v = key.initial
		}
		if !v.IsValid() {
			continue
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(b, `\"`...)
		b = append(b, key.name...)
		b = append(b, `\":`...)
		if b = appendScalar(b, v); b == nil {
			return nil
		}
	}
	if len(b) == start {
		return nil
	}
	return append(b, '}')
}

// maxDigits bounds the numbers handled here: numbers of that length are exact in every type that the library decodes them into.
const maxDigits = 15

// appendScalar appends a value as JSON inside a JSON string. It returns nil if the value is not plain.
func appendScalar(b []byte, v reflect.Value) []byte {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		s := v.String()
		if !allPlain(s) {
			return nil
		}
		b = append(b, `\"`...)
		b = append(b, s...)
		return append(b, `\"`...)
	case reflect.Int, reflect.Int32, reflect.Int64:
		start := len(b)
		b = strconv.AppendInt(b, v.Int(), 10)
		if len(b)-start > maxDigits {
			return nil
		}
		return b
	}
	return nil
}

// compareElements orders elements as the library does: fields, then items by their keys, then items by their values.
func compareElements(a, b []byte) int {
	if a[0] != b[0] {
		return cmp.Compare(a[0], b[0]) // f, k, v
	}
	switch a[0] {
	case 'k':
		return compareKeys(a[len("k:{"):], b[len("k:{"):])
	case 'v':
		x, _ := cutScalar(a[len("v:"):])
		y, _ := cutScalar(b[len("v:"):])
		return x.compare(y)
	}
	return bytes.Compare(a, b)
}

func compareKeys(a, b []byte) int {
	for len(a) > 1 && len(b) > 1 { // more than the closing brace is left
		var x, y scalar
		x, a = cutScalar(a)
		y, b = cutScalar(b)
		if c := x.compare(y); c != 0 {
			return c
		}
		x, a = cutScalar(a[1:])
		y, b = cutScalar(b[1:])
		if c := x.compare(y); c != 0 {
			return c
		}
		a, b = bytes.TrimPrefix(a, comma), bytes.TrimPrefix(b, comma)
	}
	return cmp.Compare(len(a), len(b))
}

var comma = []byte{','}

// scalar is a string or a number within an element.
type scalar struct {
	text   []byte
	number bool
}

func (s scalar) compare(t scalar) int {
	switch {
	case s.number && t.number:
		return cmp.Compare(s.int(), t.int())
	case s.number:
		return -1
	case t.number:
		return 1
	}
	return bytes.Compare(s.text, t.text)
}

func (s scalar) int() int64 {
	n, _ := strconv.ParseInt(string(s.text), 10, 64)
	return n
}

// cutScalar returns the scalar at the beginning of an element and the rest, which is nil if there is no scalar.
func cutScalar(b []byte) (scalar, []byte) {
	if bytes.HasPrefix(b, []byte(`\"`)) {
		b = b[2:]
		if end := bytes.IndexByte(b, '\\'); end >= 0 && end+1 < len(b) {
			return scalar{text: b[:end]}, b[end+2:]
		}
		return scalar{}, nil
	}
	end := 0
	for end < len(b) && (b[end] == '-' && end == 0 || '0' <= b[end] && b[end] <= '9') {
		end++
	}
	return scalar{text: b[:end], number: true}, b[end:]
}

// valid reports whether an element is exactly as the library writes it. Its characters must be plain or quotes.
func valid(element []byte) bool {
	if len(element) < 2 || element[1] != ':' {
		return false
	}
	switch rest := element[2:]; element[0] {
	case 'f':
		return true
	case 'k':
		return validKeys(rest)
	case 'v':
		s, rest := cutScalar(rest)
		return s.valid() && rest != nil && len(rest) == 0
	}
	return false
}

func validKeys(b []byte) bool {
	if len(b) == 0 || b[0] != '{' {
		return false
	}
	var last []byte
	for b = b[1:]; ; b = b[1:] {
		name, rest := cutScalar(b)
		if name.number || len(rest) == 0 || rest[0] != ':' || last != nil && bytes.Compare(last, name.text) >= 0 {
			return false
		}
		var s scalar
		if s, b = cutScalar(rest[1:]); !s.valid() || len(b) == 0 {
			return false
		}
		if b[0] != ',' {
			return string(b) == "}"
		}
		last = name.text
	}
}

// valid reports whether the scalar was found, and whether a number is in canonical form.
func (s scalar) valid() bool {
	if !s.number {
		return s.text != nil
	}
	return len(s.text) <= maxDigits && strconv.FormatInt(s.int(), 10) == string(s.text)
}
