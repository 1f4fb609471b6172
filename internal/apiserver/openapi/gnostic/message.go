package gnostic

import (
	"encoding/json"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// message describes the encoding of a JSON object's members.
type message struct {
	fields map[string]field
	// named encodes members that are not in fields: entries of a map, each with its name.
	named field
	// extensions is the number of the field for members whose names start with x-.
	extensions protowire.Number
	// choose, if set, replaces the other fields: it returns the field that encodes the whole object.
	choose func(object []byte) (field, error)
}

// field appends the encoding of a value to b. Only entries of maps use the name.
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

// str returns a string field; like all simple fields it is left out if it is empty.
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

// strs returns a repeated string field.
func strs(n protowire.Number) field {
	return each(func(b []byte, _ string, value []byte) ([]byte, error) {
		s, err := text(value)
		return appendText(b, n, s), err
	})
}

// anything returns a field for any value. The message holds it as YAML, and JSON is YAML.
func anything(n protowire.Number) field {
	return nested(n, func(b []byte, _ string, value []byte) ([]byte, error) {
		return appendText(b, 2, string(value)), nil
	})
}

func anythings(n protowire.Number) field { return each(anything(n)) }

// object returns a message field.
func object(n protowire.Number, m *message) field {
	return nested(n, func(b []byte, _ string, value []byte) ([]byte, error) { return m.append(b, value) })
}

func objects(n protowire.Number, m *message) field { return each(object(n, m)) }

// entry returns a field for the entries of a map whose values are messages.
func entry(n protowire.Number, m *message) field { return namedAs(n, object(2, m)) }

func namedAs(n protowire.Number, value field) field {
	return nested(n, func(b []byte, name string, v []byte) ([]byte, error) { return value(appendText(b, 1, name), name, v) })
}

// wrapped returns a message field that holds repeated strings.
func wrapped(n protowire.Number) field          { return nested(n, strs(1)) }
func list(n protowire.Number, m *message) field { return nested(n, objects(1, m)) }

// allowed returns a field for a message or a boolean.
func allowed(n protowire.Number, m *message) field {
	schema := object(1, m)
	return nested(n, func(b []byte, name string, value []byte) ([]byte, error) {
		if value[0] == '{' {
			return schema(b, name, value)
		}
		return appendBool(b, 2, string(value) == "true"), nil
	})
}

// scalar returns a field for a number, a boolean or a string. The message cannot hold anything else.
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

// each returns a field that applies f to every element of an array.
func each(f field) field {
	return func(b []byte, name string, value []byte) ([]byte, error) {
		err := elements(value, func(value []byte) (err error) {
			b, err = f(b, name, value)
			return err
		})
		return b, err
	}
}

// nested returns a field that puts what f appends into a message. The length is only known afterwards: one byte is reserved for it,
// and what was appended is moved if that is not enough.
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
