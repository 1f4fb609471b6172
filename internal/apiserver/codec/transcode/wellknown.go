package transcode

import (
	"encoding/json"
	"errors"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// appendWellKnown appends the JSON of a value of a well-known type.
func appendWellKnown(b []byte, v value, message []byte) ([]byte, error) {
	switch v.kind {
	case timestamp:
		return appendTime(b, message)
	case microTime:
		return appendMicroTime(b, message)
	case quantity:
		if s, ok := canonicalQuantity(message); ok {
			b = append(b, '"')
			b = append(b, s...)
			return append(b, '"'), nil
		}
	case intOrString:
		return appendIntOrString(b, message)
	case fieldsV1:
		if raw, ok := plainFields(message); ok {
			return append(b, raw...), nil
		}
	}
	return v.plan.appendOpaque(b, message)
}

// appendOpaque appends the JSON of a message, which may come in pieces, by unmarshalling it into its Go type.
func (p *Plan) appendOpaque(b []byte, pieces ...[]byte) ([]byte, error) {
	v := reflect.New(p.goType)
	if p.goType.Kind() == reflect.Slice { // the generated code never leaves it nil
		v.Elem().Set(reflect.MakeSlice(p.goType, 0, 0))
	}
	obj := v.Interface()
	for _, piece := range pieces {
		if err := unmarshal(obj.(unmarshaler), piece); err != nil {
			return b, err
		}
	}
	out, err := json.Marshal(obj)
	return append(b, out...), err
}

// valid reports whether a map's value that is superseded by another is well-formed.
func (v value) valid(content []byte) bool {
	return v.plan == nil || unmarshal(reflect.New(v.plan.goType).Interface().(unmarshaler), content) == nil
}

// unmarshal unmarshals a message. It recovers from the panic of Quantity's Unmarshal for lengths near 2^63.
func unmarshal(obj unmarshaler, message []byte) (err error) {
	defer func() {
		if recover() != nil {
			err = errMalformed
		}
	}()
	return obj.Unmarshal(message)
}

// The fields of the well-known types.
var (
	timestampWires   = []wire{1: {oneVarint, 0}, 2: {oneVarint, 1}} // seconds, nanos
	intOrStringWires = []wire{1: {oneVarint, 0}, 2: {oneVarint, 1}, 3: {oneBytes, 2}}
	fieldsV1Wires    = []wire{1: {oneBytes, 0}}
)

// readTime decodes the message of a Time or MicroTime; an empty message is the zero time.
func readTime(message []byte) (seconds int64, nanos int32, err error) {
	var slots [2]slot
	m := scanned{wires: timestampWires, slots: slots[:]}
	err = m.scan(message, 0)
	return int64(m.varint(0)), int32(m.varint(1)), err
}

// appendTime appends the JSON of a Time: null if it is zero, else without fractions of a second.
func appendTime(b, message []byte) ([]byte, error) {
	seconds, _, err := readTime(message)
	t := time.Unix(seconds, 0)
	if err != nil || len(message) == 0 || t.IsZero() {
		return append(b, null...), err
	}
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339)
	return append(b, '"'), nil
}

// appendMicroTime appends the JSON of a MicroTime: null if it is zero, else with six digits of microseconds.
func appendMicroTime(b, message []byte) ([]byte, error) {
	seconds, nanos, err := readTime(message)
	t := time.Unix(seconds, int64(time.Duration(nanos).Truncate(time.Microsecond)))
	if err != nil || len(message) == 0 || t.IsZero() {
		return append(b, null...), err
	}
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, metav1.RFC3339Micro)
	return append(b, '"'), nil
}

func appendIntOrString(b, message []byte) ([]byte, error) {
	var slots [3]slot
	m := scanned{wires: intOrStringWires, slots: slots[:]}
	if err := m.scan(message, 0); err != nil {
		return b, err
	}
	switch intstr.Type(m.varint(0)) {
	case intstr.Int:
		return appendNumber(b, int32s, int32s.number(m.varint(1))), nil
	case intstr.String:
		return AppendString(b, m.bytes(2)), nil
	}
	return b, errors.New("neither an integer nor a string")
}

// canonicalQuantity returns the text of a quantity in canonical form, which is written unchanged: a whole number with neither needless zeros
// nor too many digits, in the largest unit that leaves it whole. ok is false for others, which the Quantity type formats.
func canonicalQuantity(message []byte) (s []byte, ok bool) {
	const tag = 1<<3 | typeBytes
	if len(message) < 3 || message[0] != tag || int(message[1]) != len(message)-2 {
		return nil, false
	}
	s = message[2:]
	digits, n := 0, 0
	for digits < len(s) && '0' <= s[digits] && s[digits] <= '9' {
		n = (n*10 + int(s[digits]-'0')) % (1000 * 1024) // enough to tell whether 1000 or 1024 divides it
		digits++
	}
	if digits == 0 || s[0] == '0' {
		return s, string(s) == "0"
	}
	switch string(s[digits:]) {
	case "", "n", "u", "m", "k", "M", "G", "T", "P", "E":
		return s, digits <= 18 && n%1000 != 0
	case "Ki":
		return s, digits <= 11 && n%1024 != 0
	case "Mi":
		return s, digits <= 8 && n%1024 != 0
	case "Gi":
		return s, digits <= 5 && n%1024 != 0
	}
	return nil, false
}

// plainFields returns the JSON of managed fields if it can be copied unchanged.
func plainFields(message []byte) ([]byte, bool) {
	var slots [1]slot
	m := scanned{wires: fieldsV1Wires, slots: slots[:]}
	if m.scan(message, 0) != nil {
		return nil, false
	}
	raw := slots[0].of(message) // empty fields are null, and not plain
	return raw, plainObject(raw)
}

// maxPlain is the maximum depth of plain objects; deeper ones are left to encoding/json, which has a bound of its own.
const maxPlain = 100

// plainObject reports whether JSON consists of nested objects only, without white space and without a character that encoding/json would
// escape. Managed fields are usually written like that.
func plainObject(raw []byte) bool {
	at := func(i int) byte {
		if i < len(raw) {
			return raw[i]
		}
		return 0
	}
	for i, depth := 0, 0; at(i) == '{' && depth < maxPlain; {
		i++
		depth++
		if at(i) == '}' {
			for at(i) == '}' {
				i++
				if depth--; depth == 0 {
					return i == len(raw)
				}
			}
			if at(i) != ',' {
				return false
			}
			i++
		}
		if at(i) != '"' {
			return false
		}
		for i++; ; i += len(`\"`) {
			for i < len(raw) && plain[raw[i]] {
				i++
			}
			if at(i) != '\\' || at(i+1) != '"' && at(i+1) != '\\' {
				break
			}
		}
		if at(i) != '"' || at(i+1) != ':' {
			return false
		}
		i += len(`":`)
	}
	return false
}
