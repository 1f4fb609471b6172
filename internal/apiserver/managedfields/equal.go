package managedfields

import (
	"bytes"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// equal reports, by the library, whether two values that differ in Go are equal in JSON.
func (c *comparison) equal(a, b reflect.Value) bool {
	switch x, y := content(a), content(b); x.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
		return false
	case reflect.Struct:
		if x.CanAddr() && y.CanAddr() && otherTime(x.Addr().Interface(), y.Addr().Interface()) {
			return false
		}
	}
	x, y := c.valueOf(a), c.valueOf(b)
	return x != nil && y != nil && value.Equals(y, x)
}

// otherTime reports whether two times differ by a second or more, as most different times do.
func otherTime(a, b any) bool {
	switch a := a.(type) {
	case *metav1.Time:
		return a.Unix() != b.(*metav1.Time).Unix()
	case *metav1.MicroTime:
		return a.Unix() != b.(*metav1.MicroTime).Unix()
	}
	return false
}

func (c *comparison) valueOf(v reflect.Value) value.Value {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return value.NewValueInterface(nil)
	case v.Kind() == reflect.Pointer:
	case v.CanAddr():
		v = v.Addr()
	default:
		copied := reflect.New(v.Type())
		copied.Elem().Set(v)
		v = copied
	}
	out, err := value.NewValueReflect(v.Interface())
	c.needsLibrary = c.needsLibrary || err != nil
	return out
}

// cheaplySame reports whether two values are the same, without following pointers; it may return false for equal values.
func cheaplySame(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Pointer, reflect.Map:
		return a.UnsafePointer() == b.UnsafePointer()
	case reflect.Slice:
		return a.UnsafePointer() == b.UnsafePointer() && a.Len() == b.Len()
	}
	return false
}

// same reports whether two values are the same in Go, and so in JSON. It is reflect.DeepEqual for values without cycles.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		return a.UnsafePointer() == b.UnsafePointer() || !a.IsNil() && !b.IsNil() && same(a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		return a.IsNil() == b.IsNil() && a.Len() == b.Len() && sameItems(a, b)
	case reflect.Map:
		return a.IsNil() == b.IsNil() && a.Len() == b.Len() && sameKeys(a, b)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return a.Uint() == b.Uint()
	case reflect.Float32, reflect.Float64:
		return a.Float() == b.Float()
	case reflect.Interface:
		return a.IsNil() && b.IsNil()
	}
	return cheaplySame(a, b)
}

func sameItems(a, b reflect.Value) bool {
	if a.UnsafePointer() == b.UnsafePointer() {
		return true
	}
	if a.Type().Elem().Kind() == reflect.Uint8 {
		return bytes.Equal(a.Bytes(), b.Bytes())
	}
	for i := range a.Len() {
		if !same(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

func sameKeys(a, b reflect.Value) bool {
	if a.UnsafePointer() == b.UnsafePointer() {
		return true
	}
	for i := a.MapRange(); i.Next(); {
		if v := b.MapIndex(i.Key()); !v.IsValid() || !same(i.Value(), v) {
			return false
		}
	}
	return true
}
