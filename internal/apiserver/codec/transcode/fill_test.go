package transcode

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// filler builds random objects and rearranges their messages.
type filler struct{ *rand.Rand }

var texts = []string{"", "a", "web-0", "app.kubernetes.io/name", "<b>&amp;</b>", `say "no" \ yes`, "line\nbreak\ttab\r\b\f\x00\x1f\x7f", "\u2028\u2029",
	"größe 日本語 🚢", "not \xff UTF-8 \xe2\x80", "\xed\xa0\x80", strings.Repeat("long ", 60), strings.Repeat("0123456&", 20)}

var fieldSets = []string{``, `null`, `{}`, ` { "f:a" : {} } `, `{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{}}}}}`,
	`{"f:metadata":{"f:labels":{"f:<&>":{}}}}`, `{"f:metadata":{"f:labels":{"f:größe":{}}}}`, "{\"f:\u2028\":{}}", `{"v:\u003c\/":{},"b":{"c":{}}}`,
	`{"n":[1,-2.5e3,true,false,null,"s"]}`, "\xa1\x61\x61\x01"}

// fill sets v to a random value, which is less likely to be set the deeper it is nested.
func (r filler) fill(v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		*p = metav1.Time{Time: r.time()}
		return
	case *metav1.MicroTime:
		*p = metav1.MicroTime{Time: r.time()}
		return
	case *resource.Quantity:
		*p = r.quantity()
		return
	case *intstr.IntOrString:
		*p = intstr.FromInt32(int32(r.integer()))
		if r.IntN(2) == 0 {
			*p = intstr.FromString(texts[r.IntN(len(texts))])
		}
		return
	case *metav1.FieldsV1:
		p.SetRawString(fieldSets[r.IntN(len(fieldSets))])
		return
	case *runtime.RawExtension:
		if p.Raw = []byte(fieldSets[r.IntN(len(fieldSets)-1)]); len(p.Raw) == 0 {
			p.Raw = nil
		}
		return
	}
	r.fillKind(v, depth)
}

func (r filler) fillKind(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		if n := r.integer(); v.OverflowInt(n) {
			v.SetInt(int64(int32(n)))
		} else {
			v.SetInt(n)
		}
	case reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case reflect.Pointer:
		if r.IntN(2+depth) < 2 {
			v.Set(reflect.New(v.Type().Elem()))
			r.fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		if r.IntN(2+depth) >= 2 {
			return
		}
		n := r.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			r.fill(v.Index(i), depth+1)
		}
	case reflect.Uint8:
		v.SetUint(r.Uint64() & 0xff)
	case reflect.Map:
		if r.IntN(2+depth) >= 2 {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(5) {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			r.fill(key, depth+1)
			r.fill(elem, depth+1)
			v.SetMapIndex(key, elem)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Type != reflect.TypeFor[metav1.TypeMeta]() && r.IntN(8) > 0 {
				r.fill(v.Field(i), depth+1)
			}
		}
	}
}

func (r filler) integer() int64 {
	switch r.IntN(4) {
	case 0:
		return int64(r.IntN(3)) - 1
	case 1:
		return int64(r.Uint64())
	}
	return int64(r.IntN(100000))
}

func (r filler) time() time.Time {
	switch r.IntN(6) {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(int64(r.Uint64()>>uint(r.IntN(64))), int64(r.IntN(1e9)))
	case 2:
		return time.Unix(-int64(r.Uint32()), 0)
	}
	return time.Unix(int64(r.Uint32()), int64(r.IntN(1e9))).UTC()
}

// quantity returns a random quantity, with or without its text cached.
func (r filler) quantity() resource.Quantity {
	if r.IntN(10) == 0 {
		return resource.Quantity{}
	}
	q, err := resource.ParseQuantity(r.quantityText())
	if err != nil {
		return resource.Quantity{}
	}
	if r.IntN(2) == 0 {
		q.Add(resource.MustParse("1"))
	}
	return q
}

// quantityText returns a text that looks like a quantity and mostly is one.
func (r filler) quantityText() string {
	units := []string{"", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2", "i", "x"}
	digits := strconv.FormatUint(r.Uint64()>>uint(r.IntN(64)), 10)
	if r.IntN(3) == 0 {
		digits = strconv.Itoa(r.IntN(2049) * []int{1, 8, 1000, 1024}[r.IntN(4)])
	}
	switch r.IntN(12) {
	case 0:
		digits = "-" + digits
	case 1:
		digits = "+" + digits
	case 2:
		digits = "0" + digits
	case 3:
		digits += "." + strconv.Itoa(r.IntN(5000))
	}
	return digits + units[r.IntN(len(units))]
}

// rearrange changes the order of the fields of a message of type t, but not of one field's values, and splits messages into pieces. Protobuf
// allows both.
func (r filler) rearrange(t *testing.T, message []byte, of reflect.Type) []byte {
	parts := split(t, message)
	parts = r.shuffle(parts)
	var out []byte
	for _, p := range parts {
		sub, single := messageField(of, p.number)
		if sub == nil {
			out = append(out, p.raw...)
			continue
		}
		inner := r.rearrange(t, p.value, sub)
		if pieces := split(t, inner); single && len(pieces) > 1 && r.IntN(2) == 0 {
			first := 0
			for _, piece := range pieces[:1+r.IntN(len(pieces)-1)] {
				first += len(piece.raw)
			}
			out = appendBytes(out, p.number, inner[:first])
			inner = inner[first:]
		}
		out = appendBytes(out, p.number, inner)
	}
	return out
}

func appendBytes(b []byte, number int, value []byte) []byte {
	b = binary.AppendUvarint(b, uint64(number)<<3|2)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

type part struct {
	number     int
	raw, value []byte
}

func split(t *testing.T, message []byte) (parts []part) {
	t.Helper()
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		p := part{number: int(tag >> 3)}
		switch tag & 7 {
		case 0:
			_, m := binary.Uvarint(message[n:])
			n += m
		case 1: // the numbers of a definition's schema
			n += 8
		case 2:
			size, m := binary.Uvarint(message[n:])
			n += m + int(size)
			p.value = message[n-int(size) : n]
		default:
			t.Fatalf("no Kubernetes type has wire type %d", tag&7)
		}
		p.raw, message = message[:n], message[n:]
		parts = append(parts, p)
	}
	return parts
}

// shuffle shuffles fields but keeps the order of the values of one field, which is significant for lists.
func (r filler) shuffle(parts []part) []part {
	byNumber := map[int][]part{}
	order := make([]int, len(parts))
	for i, p := range parts {
		byNumber[p.number] = append(byNumber[p.number], p)
		order[i] = p.number
	}
	r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for i, number := range order {
		parts[i] = byNumber[number][0]
		byNumber[number] = byNumber[number][1:]
	}
	return parts
}

// messageField returns the type of a struct's field if it is a message with fields, and whether it is not repeated.
func messageField(t reflect.Type, number int) (sub reflect.Type, single bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		parts := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(parts) < 2 || parts[1] != strconv.Itoa(number) {
			continue
		}
		sub, single = f.Type, true
		if sub.Kind() == reflect.Slice {
			sub, single = sub.Elem(), false
		} else if sub.Kind() == reflect.Pointer {
			sub = sub.Elem()
		}
		switch {
		case sub.Kind() != reflect.Struct:
		case sub == reflect.TypeFor[resource.Quantity](), sub == reflect.TypeFor[metav1.Time](), sub == reflect.TypeFor[metav1.MicroTime]():
		default:
			return sub, single
		}
	}
	return nil, false
}
