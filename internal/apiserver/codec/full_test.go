package codec

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/catalog"
)

// makeFull encodes an object of a kind of which k8s.io/api has no test data, with every field set.
func (f *filled) makeFull(t *testing.T) {
	t.Helper()
	obj := f.new().(catalog.Object)
	new(setter).set(reflect.ValueOf(obj).Elem(), map[reflect.Type]int{})
	message, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	head := EnvelopeHead(f.gvk)
	f.encoded[Protobuf] = AppendEnvelope(make([]byte, 0, EnvelopeSize(head, len(message))), head, message)
	obj.GetObjectKind().SetGroupVersionKind(f.gvk)
	if f.encoded[JSON], err = json.Marshal(obj); err != nil {
		t.Fatal(err)
	}
	if f.encoded[YAML], err = yaml.JSONToYAML(f.encoded[JSON]); err != nil {
		t.Fatal(err)
	}
}

// setter sets all fields of an object to values of which no two are the same.
type setter struct{ n int64 }

// set sets a value. Types that contain themselves are set twice below each other.
func (s *setter) set(v reflect.Value, above map[reflect.Type]int) {
	s.n++
	switch p := v.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		return
	case *metav1.Time:
		*p = metav1.NewTime(time.Unix(1700000000+s.n, 0))
		return
	case *metav1.FieldsV1:
		p.SetRawString(`{"f:` + strconv.FormatInt(s.n, 10) + `":{}}`)
		return
	case *apiextensionsv1.JSON:
		p.Raw = []byte(`{"a":` + strconv.FormatInt(s.n, 10) + `}`)
		return
	case *apiextensionsv1.JSONSchemaPropsOrBool:
		p.Allows = true // as decoding sets it
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("s" + strconv.FormatInt(s.n, 10))
	case reflect.Int32, reflect.Int64:
		v.SetInt(s.n)
	case reflect.Uint8:
		v.SetUint(uint64(s.n % 256))
	case reflect.Float64:
		v.SetFloat(float64(s.n) + 0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		s.set(v.Elem(), above)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		s.set(v.Index(0), above)
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		s.set(value, above)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"+strconv.FormatInt(s.n, 10)).Convert(v.Type().Key()), value)
	case reflect.Struct:
		s.setFields(v, above)
	}
}

func (s *setter) setFields(v reflect.Value, above map[reflect.Type]int) {
	const most = 2
	if above[v.Type()] == most {
		return
	}
	above[v.Type()]++
	defer func() { above[v.Type()]-- }()
	for i := range v.NumField() {
		// Of a schema or something else, JSON has room for one.
		if name := v.Type().Field(i).Name; name == "JSONSchemas" || name == "Property" {
			continue
		}
		s.set(v.Field(i), above)
	}
}
