package check

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Internal returns a value that errors print as upstream's server prints a value of a k8s.io/api type: upstream validates
// objects in internal types without JSON names, so that structs show the names of their Go fields, and none is omitted.
func Internal(value any) any { return internal(value) }

func internal(value any) any {
	t := reflect.TypeOf(value)
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t = t.Elem()
	}
	if t == nil || !isAPIStruct(t) {
		return value
	}
	return goNamed{value}
}

type goNamed struct{ value any }

func (g goNamed) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := writeGoNamed(&b, reflect.ValueOf(g.value))
	return b.Bytes(), err
}

func writeGoNamed(b *bytes.Buffer, v reflect.Value) error {
	switch {
	case isAPIStruct(v.Type()):
		b.WriteByte('{')
		err := writeFields(b, v)
		b.WriteByte('}')
		return err
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return writeGoNamed(b, v.Elem())
	case v.Kind() == reflect.Slice && !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeGoNamed(b, v.Index(i)); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case v.Kind() == reflect.Map && !v.IsNil() && v.Type().Key().Kind() == reflect.String:
		return writeMap(b, v)
	}
	return writeJSON(b, v.Interface())
}

// typeMeta is omitted: upstream's internal types do not show kind and apiVersion.
var typeMeta = reflect.TypeFor[metav1.TypeMeta]()

func writeFields(b *bytes.Buffer, v reflect.Value) error {
	first := b.Len()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Type == typeMeta {
			continue
		}
		if b.Len() > first {
			b.WriteByte(',')
		}
		var err error
		switch {
		case f.Anonymous && isAPIStruct(f.Type):
			err = writeFields(b, v.Field(i))
		case f.Anonymous: // of meta/v1, whose fields do have JSON names
			var own []byte
			own, err = json.Marshal(v.Field(i).Interface())
			b.Write(bytes.TrimSuffix(bytes.TrimPrefix(own, []byte("{")), []byte("}")))
		default:
			b.WriteString(`"` + f.Name + `":`)
			err = writeGoNamed(b, v.Field(i))
		}
		if err != nil {
			return err
		}
		if b.Bytes()[b.Len()-1] == ',' { // nothing came after the comma
			b.Truncate(b.Len() - 1)
		}
	}
	return nil
}

func writeMap(b *bytes.Buffer, v reflect.Value) error {
	values := map[string]reflect.Value{}
	for _, key := range v.MapKeys() {
		values[key.String()] = v.MapIndex(key)
	}
	b.WriteByte('{')
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeJSON(b, key); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := writeGoNamed(b, values[key]); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeJSON(b *bytes.Buffer, value any) error {
	text, err := json.Marshal(value)
	b.Write(text)
	return err
}

func isAPIStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && strings.HasPrefix(t.PkgPath(), "k8s.io/api/")
}
