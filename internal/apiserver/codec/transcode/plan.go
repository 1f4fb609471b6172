package transcode

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/catalog/initializers"
)

// Plan describes how messages of one Go type are written as JSON. It is immutable and safe for concurrent use.
type Plan struct {
	goType reflect.Type
	opaque bool // messages are unmarshalled and marshalled by encoding/json

	wires  []wire   // by field number
	fields []field  // in the order of their JSON keys; each has the slot of its index
	always fieldSet // fields that are written even if the message does not have them
}

// field is one JSON key of an object, or the keys of a struct embedded in it.
type field struct {
	key       string // with comma and colon: `,"spec":`
	absent    string // written, key included, if the message does not have the field
	number    int32
	shape     shape
	omitEmpty bool // omit the field if the message has an empty value for it
	omitZero  bool // omit a time that is zero
	value     value
}

// shape is the form of a field's value in JSON.
type shape uint8

const (
	number      shape = iota
	stringValue       // a JSON string
	single            // bytes or a well-known type
	nested            // a message
	inlined           // a message of an embedded struct, whose keys are written among those of the outer struct
	list
	mapping
)

// value is the type of a field, of a list's elements or of a map's values.
type value struct {
	kind kind
	plan *Plan // nil if the value is no message
}

type kind uint8

const (
	boolean kind = iota
	int32s
	int64s
	text
	blob
	submessage // this kind and those after it are messages
	timestamp
	microTime
	quantity
	intOrString
	fieldsV1
)

// wellKnownTypes are the types with a MarshalJSON that wellknown.go writes.
var wellKnownTypes = map[reflect.Type]kind{
	reflect.TypeFor[metav1.Time]():        timestamp,
	reflect.TypeFor[metav1.MicroTime]():   microTime,
	reflect.TypeFor[resource.Quantity]():  quantity,
	reflect.TypeFor[intstr.IntOrString](): intOrString,
	reflect.TypeFor[metav1.FieldsV1]():    fieldsV1,
}

// unmarshaler is implemented by every message type.
type unmarshaler interface{ Unmarshal([]byte) error }

var (
	unmarshalerType   = reflect.TypeFor[unmarshaler]()
	marshalerType     = reflect.TypeFor[json.Marshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
)

// plans caches the plans; their number is bounded by that of the program's types.
var plans sync.Map // reflect.Type -> *Plan

// Compile returns the plan of a Go type, a struct of k8s.io/api with protobuf and json tags. Plans are cached, so that every call but the
// first is cheap. It fails for types that are no messages.
func Compile(t reflect.Type) (*Plan, error) {
	if p, ok := plans.Load(t); ok && t.Kind() == reflect.Struct {
		return p.(*Plan), nil
	}
	c := compiler{}
	p, err := c.plan(t)
	if err == nil && t.Kind() != reflect.Struct {
		err = errors.New("it is not a struct")
	}
	if err != nil {
		return nil, fmt.Errorf("failed to compile a plan to write messages of %v as JSON: %w", t, err)
	}
	for t, p := range c {
		plans.LoadOrStore(t, p)
	}
	return p, nil
}

// compiler holds the plans of one Compile: types can be recursive, so a plan can be referred to before it is complete.
type compiler map[reflect.Type]*Plan

// plan returns the plan of a message type, opaque if a plan cannot express the type.
func (c compiler) plan(t reflect.Type) (*Plan, error) {
	if p, ok := plans.Load(t); ok {
		return p.(*Plan), nil
	}
	if p, ok := c[t]; ok {
		return p, nil
	}
	switch {
	case !reflect.PointerTo(t).Implements(unmarshalerType):
		return nil, errors.New("it is not a protobuf message")
	case !t.Implements(marshalerType) && reflect.PointerTo(t).Implements(marshalerType):
		return nil, errors.New("its JSON depends on whether it is addressable")
	}
	p := &Plan{goType: t}
	c[t] = p
	if t.Kind() != reflect.Struct || t.Implements(marshalerType) || t.Implements(textMarshalerType) || c.fill(p) != nil {
		*p = Plan{goType: t, opaque: true}
	}
	return p, nil
}

// errInexpressible is returned internally if a plan cannot express a type.
var errInexpressible = errors.New("inexpressible")

func (c compiler) fill(p *Plan) error {
	for i := range p.goType.NumField() {
		if err := c.add(p, p.goType.Field(i)); err != nil {
			return err
		}
	}
	if p.goType == objectMeta {
		if err := c.add(p, initializersField); err != nil {
			return err
		}
	}
	return distinct(p, map[string]bool{})
}

var objectMeta = reflect.TypeFor[metav1.ObjectMeta]()

// initializersField is the field of ObjectMeta that its Go type has no more: see package initializers.
var initializersField = reflect.StructField{Name: "Initializers", Type: reflect.TypeFor[*initializers.Initializers](),
	Tag: `json:"initializers,omitempty" protobuf:"bytes,16,opt,name=initializers"`}

// distinct refuses plans with duplicate keys: encoding/json has rules for which of them wins.
func distinct(p *Plan, seen map[string]bool) error {
	for i := range p.fields {
		f := &p.fields[i]
		if f.shape == inlined {
			if err := distinct(f.value.plan, seen); err != nil {
				return err
			}
		} else if seen[f.key] {
			return errInexpressible
		} else {
			seen[f.key] = true
		}
	}
	return nil
}

// add compiles one field of a struct.
func (c compiler) add(p *Plan, sf reflect.StructField) error {
	name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
	if !sf.IsExported() || strings.Trim(name, nameCharacters) != "" || name == "-" {
		return errInexpressible // no type of k8s.io/api without a MarshalJSON has such a field
	}
	var f field
	var form form
	var err error
	if sf.Anonymous && name == "" {
		form, err = oneBytes, c.inline(&f, sf.Type)
	} else {
		f.key = `,"` + cmp.Or(name, sf.Name) + `":`
		form, err = c.shape(&f, sf.Type)
	}
	if err == nil {
		err = f.options(sf.Type, options)
	}
	if err == nil {
		err = p.number(&f, form, sf.Tag.Get("protobuf"))
	}
	if err != nil || len(p.fields) == maxFields {
		return errInexpressible
	}
	if f.absent != "" {
		p.always |= 1 << len(p.fields)
	}
	p.fields = append(p.fields, f)
	return nil
}

// nameCharacters are the characters of Kubernetes' keys: valid in a tag and without need of escaping.
const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_$."

// maxNumber bounds the table of field numbers; those of k8s.io/api are far below.
const maxNumber = 1000

// number registers the field number of a field for scan. A field without a protobuf tag occurs in no message.
func (p *Plan) number(f *field, form form, tag string) error {
	if tag == "" || tag == "-" {
		return nil
	}
	// The wire type in the tag is often wrong. The generated code uses the Go type.
	_, rest, _ := strings.Cut(tag, ",")
	digits, _, _ := strings.Cut(rest, ",")
	number, err := strconv.Atoi(digits)
	if err != nil || number < 1 || number > maxNumber {
		return errInexpressible
	}
	for len(p.wires) <= number {
		p.wires = append(p.wires, wire{})
	}
	if p.wires[number].form != unknown {
		return errInexpressible
	}
	f.number = int32(number)
	p.wires[number] = wire{form: form, slot: uint8(len(p.fields))}
	return nil
}

// inline compiles an embedded struct, whose keys encoding/json writes among those of the outer struct.
func (c compiler) inline(f *field, t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return errInexpressible
	}
	plan, err := c.plan(t)
	if err != nil || plan.opaque {
		return errInexpressible
	}
	f.shape, f.value = inlined, value{kind: submessage, plan: plan}
	return nil
}

// shape compiles the type of a field that has a key.
func (c compiler) shape(f *field, t reflect.Type) (form, error) {
	isMessage := reflect.PointerTo(t).Implements(unmarshalerType)
	var err error
	switch {
	case !isMessage && marshalsItself(t):
		return unknown, errInexpressible
	case t.Kind() == reflect.Map && !isMessage:
		f.shape = mapping
		if t.Key().Kind() != reflect.String || marshalsItself(t.Key()) {
			return unknown, errInexpressible
		}
		if f.value, err = c.value(t.Elem()); err == nil && f.value.kind < text {
			err = errInexpressible
		}
		return manyEntries, err
	case t.Kind() == reflect.Slice && !isMessage && t.Elem().Kind() != reflect.Uint8:
		f.shape = list
		if f.value, err = c.value(t.Elem()); f.value.kind < text {
			return manyVarints, err
		}
		return manyBytes, err
	case t.Kind() == reflect.Pointer:
		if t = t.Elem(); t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			return unknown, errInexpressible
		}
	}
	switch f.value, err = c.value(t); {
	case f.value.kind < text:
		f.shape = number
		return oneVarint, err
	case f.value.kind == text:
		f.shape = stringValue
	case f.value.kind == submessage:
		f.shape = nested
	default:
		f.shape = single
	}
	return oneBytes, err
}

// value compiles the type of a single value.
func (c compiler) value(t reflect.Type) (value, error) {
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		plan, err := c.plan(t)
		if wellKnown, ok := wellKnownTypes[t]; ok {
			return value{kind: wellKnown, plan: plan}, err
		}
		return value{kind: submessage, plan: plan}, err
	}
	switch {
	case marshalsItself(t):
	case t.Kind() == reflect.Bool:
		return value{kind: boolean}, nil
	case t.Kind() == reflect.Int32:
		return value{kind: int32s}, nil
	case t.Kind() == reflect.Int64:
		return value{kind: int64s}, nil
	case t.Kind() == reflect.String:
		return value{kind: text}, nil
	case t.Kind() == reflect.Slice && t.Elem() == reflect.TypeFor[byte]():
		return value{kind: blob}, nil
	}
	return value{}, errInexpressible
}

func marshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(marshalerType) || p.Implements(textMarshalerType)
}

// options applies the omitempty and omitzero options of the json tag, and sets what is written if the message does not have the field.
func (f *field) options(t reflect.Type, options string) error {
	omitEmpty, omitZero := false, false
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "", "inline":
		case "omitempty":
			omitEmpty = true
		case "omitzero":
			omitZero = true
		default:
			return errInexpressible
		}
	}
	if omitZero && f.value.kind != timestamp && f.value.kind != microTime {
		return errInexpressible
	}
	f.omitZero = omitZero
	// A list or map that the message has is not empty, and structs and pointers that are set never count as empty.
	f.omitEmpty = omitEmpty && f.shape <= single && f.value.plan == nil && t.Kind() != reflect.Pointer
	if omitZero || omitEmpty && t.Kind() != reflect.Struct {
		return nil
	}
	zero, err := f.zero(t)
	if err != nil {
		return errInexpressible
	}
	switch {
	case f.shape != inlined:
		f.absent = f.key + string(zero)
	case len(zero) > len("{}"):
		f.absent = "," + string(zero[1:len(zero)-1])
	}
	return nil
}

// zero returns the JSON of a field that is not set.
func (f *field) zero(t reflect.Type) ([]byte, error) {
	if p := f.value.plan; p != nil && !p.opaque && t == p.goType {
		return new(writer).message(nil, p, nil) // the same as with encoding/json, which would cache its own description of the type
	}
	return json.Marshal(reflect.New(t).Interface())
}
