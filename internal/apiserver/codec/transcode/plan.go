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
)

// Plan is how messages of one Go type become JSON. It does not change once it is made, so any number of goroutines may use it.
type Plan struct {
	goType reflect.Type
	opaque bool // no plan: messages are unmarshalled and given to encoding/json

	wires  []wire   // by field number
	fields []field  // in the order of their JSON keys; each has the slot of its index
	always fieldSet // those that are written also if the message does not have them
}

// field is one JSON key of an object, or the keys of a struct embedded in it.
type field struct {
	key       string // with the comma before it and the colon behind: `,"spec":`
	absent    string // what is written, key and all, if the message does not have the field; empty: nothing
	number    int32
	shape     shape
	omitEmpty bool // leave out an empty value that the message does have
	omitZero  bool // leave out a time that is zero
	value     value
}

// shape is how a field holds its values.
type shape uint8

const (
	number  shape = iota
	words         // a string
	single        // bytes or one of the special types
	nested        // a message
	inlined       // a message on the wire, whose keys stand among those of the struct it is embedded in
	list
	mapping
)

// value is what a field, an element of a list or a value of a map is.
type value struct {
	kind kind
	plan *Plan // of messages; nil otherwise
}

type kind uint8

const (
	boolean kind = iota
	int32s
	int64s
	text
	blob
	submessage // this and what follows is a message on the wire
	timestamp
	microTime
	quantity
	intOrString
	fieldsV1
)

// specials are the types with JSON of their own that special.go writes.
var specials = map[reflect.Type]kind{
	reflect.TypeFor[metav1.Time]():        timestamp,
	reflect.TypeFor[metav1.MicroTime]():   microTime,
	reflect.TypeFor[resource.Quantity]():  quantity,
	reflect.TypeFor[intstr.IntOrString](): intOrString,
	reflect.TypeFor[metav1.FieldsV1]():    fieldsV1,
}

// unmarshaler is what the generated code makes of every message type.
type unmarshaler interface{ Unmarshal([]byte) error }

var (
	unmarshalerType   = reflect.TypeFor[unmarshaler]()
	marshalerType     = reflect.TypeFor[json.Marshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
)

// plans has the plan of every type seen so far; their number is bounded by that of the program's types.
var plans sync.Map // reflect.Type -> *Plan

// Compile makes the plan for a Go type, a struct of k8s.io/api with protobuf and json tags. Plans are kept, so that every
// call but the first is cheap. It fails for what is not a message.
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
		return nil, fmt.Errorf("no plan to write messages of %v as JSON: %w", t, err)
	}
	for t, p := range c {
		plans.LoadOrStore(t, p)
	}
	return p, nil
}

// compiler has the plans of one Compile: types may contain themselves, so a plan can be known before it is complete.
type compiler map[reflect.Type]*Plan

// plan returns the plan of a message type, opaque if its parts cannot be expressed.
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

// errInexpressible says that a plan cannot express a type; no one sees it.
var errInexpressible = errors.New("inexpressible")

func (c compiler) fill(p *Plan) error {
	for i := range p.goType.NumField() {
		if err := c.add(p, p.goType.Field(i)); err != nil {
			return err
		}
	}
	return distinct(p, map[string]bool{})
}

// distinct refuses plans that have a key twice: encoding/json has rules for which of them wins.
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
		return errInexpressible // not one type of k8s.io/api has such a field without also having a MarshalJSON
	}
	var f field
	var form form
	var err error
	if sf.Anonymous && name == "" {
		form, err = oneChunk, c.inline(&f, sf.Type)
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

// nameCharacters are those of the keys of Kubernetes: all valid in a tag and in need of no escape.
const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_$."

// maxNumber bounds the table of field numbers; the highest in k8s.io/api is far below.
const maxNumber = 1000

// number says what scan will find under a field's number. A field without a protobuf tag is in no message.
func (p *Plan) number(f *field, form form, tag string) error {
	if tag == "" || tag == "-" {
		return nil
	}
	// The wire type that the tag claims is often wrong. The generated code goes by the Go type.
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

// inline compiles an embedded struct, whose keys encoding/json puts where it is embedded.
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

// shape compiles the type of a field that has a key of its own.
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
		return manyChunks, err
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
		f.shape = words
	case f.value.kind == submessage:
		f.shape = nested
	default:
		f.shape = single
	}
	return oneChunk, err
}

// value compiles the type of a single value.
func (c compiler) value(t reflect.Type) (value, error) {
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		plan, err := c.plan(t)
		if special, ok := specials[t]; ok {
			return value{kind: special, plan: plan}, err
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

// options takes in what the json tag says about leaving a field out, and what is written if the message does not have it.
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
	// A list or a map that the message has is not empty, and structs and what pointers point to never are.
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

// zero is the JSON of a field that was not set.
func (f *field) zero(t reflect.Type) ([]byte, error) {
	if p := f.value.plan; p != nil && !p.opaque && t == p.goType {
		return new(writer).message(nil, p, nil) // encoding/json would come to the same, and keep all it found out about the type
	}
	return json.Marshal(reflect.New(t).Interface())
}
