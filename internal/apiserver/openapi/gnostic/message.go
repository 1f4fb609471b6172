package gnostic

import (
	"encoding/json"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// message says what the members of a JSON object become.
type message struct {
	fields map[string]field
	// named is what members become that are not in fields: entries of a map, each with its name.
	named field
	// extensions is the number of the field that holds members whose names start with x-.
	extensions protowire.Number
	// choose, if set, is all there is to the message: it says which of several fields the whole object becomes.
	choose func(object []byte) (field, error)
}

// field appends the encoding of a member, or of any value, to b. Only entries of maps use the name.
type field func(b []byte, name string, value []byte) ([]byte, error)

// append appends the encoding of a JSON object to b.
func (m *message) append(b []byte, value []byte) ([]byte, error) {
	if m.choose != nil {
		f, err := m.choose(value)
		if err != nil {
			return nil, err
		}
		return f(b, "", value)
	}
	err := members(value, func(name string, value []byte) (err error) {
		if f := m.field(name); f != nil {
			b, err = f(b, name, value)
		}
		return err
	})
	return b, err
}

func (m *message) field(name string) field {
	if f, ok := m.fields[name]; ok {
		return f
	}
	if m.extensions > 0 && strings.HasPrefix(name, "x-") {
		return namedAs(m.extensions, anything(2))
	}
	return m.named
}

// str is a string; like all simple fields it is left out if it is empty.
func str(n protowire.Number) field {
	return func(b []byte, _ string, value []byte) ([]byte, error) {
		s, err := text(value)
		if err != nil || s == "" {
			return b, err
		}
		return appendText(b, n, s), nil
	}
}

func boolean(n protowire.Number) field {
	return func(b []byte, _ string, value []byte) ([]byte, error) {
		if string(value) != "true" {
			return b, nil
		}
		return appendBool(b, n, true), nil
	}
}

func integer(n protowire.Number) field {
	return func(b []byte, _ string, value []byte) ([]byte, error) {
		var i int64
		if err := json.Unmarshal(value, &i); err != nil || i == 0 {
			return b, err
		}
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(i)), nil
	}
}

func double(n protowire.Number) field {
	return func(b []byte, _ string, value []byte) ([]byte, error) {
		var d float64
		if err := json.Unmarshal(value, &d); err != nil || d == 0 {
			return b, err
		}
		return appendDouble(b, n, d), nil
	}
}

// strs is any number of strings.
func strs(n protowire.Number) field {
	return each(func(b []byte, _ string, value []byte) ([]byte, error) {
		s, err := text(value)
		return appendText(b, n, s), err
	})
}

// anything is any value. The message has room for it as YAML, and JSON is YAML.
func anything(n protowire.Number) field {
	return nested(n, func(b []byte, _ string, value []byte) ([]byte, error) {
		return appendText(b, 2, string(value)), nil
	})
}

func anythings(n protowire.Number) field { return each(anything(n)) }

// object is a message, objects any number of them.
func object(n protowire.Number, m *message) field {
	return nested(n, func(b []byte, _ string, value []byte) ([]byte, error) { return m.append(b, value) })
}

func objects(n protowire.Number, m *message) field { return each(object(n, m)) }

// entry is a member of a map whose values are messages.
func entry(n protowire.Number, m *message) field { return namedAs(n, object(2, m)) }

func namedAs(n protowire.Number, value field) field {
	return nested(n, func(b []byte, name string, v []byte) ([]byte, error) { return value(appendText(b, 1, name), name, v) })
}

// wrapped is any number of strings in a message of their own, list any number of messages.
func wrapped(n protowire.Number) field          { return nested(n, strs(1)) }
func list(n protowire.Number, m *message) field { return nested(n, objects(1, m)) }

// allowed is a message or just a boolean.
func allowed(n protowire.Number, m *message) field {
	schema := object(1, m)
	return nested(n, func(b []byte, name string, value []byte) ([]byte, error) {
		if value[0] == '{' {
			return schema(b, name, value)
		}
		return appendBool(b, 2, string(value) == "true"), nil
	})
}

// scalar is a number, a boolean or a string. The message has no room for anything else.
func scalar(n protowire.Number) field {
	return nested(n, func(b []byte, _ string, value []byte) ([]byte, error) {
		var v any
		if err := json.Unmarshal(value, &v); err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case float64:
			return appendDouble(b, 1, v), nil
		case bool:
			return appendBool(b, 2, v), nil
		case string:
			return appendText(b, 3, v), nil
		default:
			return b, nil
		}
	})
}

// each applies a field to every element of an array.
func each(f field) field {
	return func(b []byte, name string, value []byte) ([]byte, error) {
		err := elements(value, func(value []byte) (err error) {
			b, err = f(b, name, value)
			return err
		})
		return b, err
	}
}

// nested puts what a field appends into a message of its own. Its length is only known afterwards: one byte is kept for
// it, and what was appended moves if that is not enough.
func nested(n protowire.Number, f field) field {
	return func(b []byte, name string, value []byte) ([]byte, error) {
		b = append(protowire.AppendTag(b, n, protowire.BytesType), 0)
		start := len(b)
		b, err := f(b, name, value)
		if err != nil {
			return nil, err
		}
		length := uint64(len(b) - start)
		if more := protowire.SizeVarint(length) - 1; more > 0 {
			b = append(b, make([]byte, more)...)
			copy(b[start+more:], b[start:])
		}
		protowire.AppendVarint(b[:start-1], length)
		return b, nil
	}
}

func appendText(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendBool(b []byte, n protowire.Number, v bool) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), protowire.EncodeBool(v))
}

func appendDouble(b []byte, n protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), math.Float64bits(v))
}
