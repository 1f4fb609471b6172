package initializers

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Initializers is metadata.initializers: the progress of the initialization of an object. An object without it is initialized.
type Initializers struct {
	// Pending has the initializers that must still act, in order. Only the first may.
	Pending []Initializer `json:"pending" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,1,rep,name=pending"`
	// Result is set by an initializer that refuses the object: the object is deleted, and its creation fails with it.
	Result *metav1.Status `json:"result,omitempty" protobuf:"bytes,2,opt,name=result"`
}

// Initializer is an initializer that must still act.
type Initializer struct {
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// MaxPending bounds the initializers of one object.
const MaxPending = 256

// CauseUninitialized is the cause of a creation's Timeout error if the object was created and still waits. The details of the error name the object.
const CauseUninitialized metav1.CauseType = "Uninitialized"

// Path is the path of the field, for errors.
func Path() *field.Path { return field.NewPath("metadata", "initializers") }

// Of returns the initializers with the given names as pending; nil if there are none.
func Of(names ...string) *Initializers {
	if len(names) == 0 {
		return nil
	}
	in := &Initializers{Pending: make([]Initializer, len(names))}
	for i, name := range names {
		in.Pending[i].Name = name
	}
	return in
}

// Names returns the names of the pending initializers.
func (in *Initializers) Names() []string {
	if in == nil {
		return nil
	}
	names := make([]string, len(in.Pending))
	for i, p := range in.Pending {
		names[i] = p.Name
	}
	return names
}

// Done reports whether nothing is pending and nothing was refused: the object is initialized.
func (in *Initializers) Done() bool { return in == nil || len(in.Pending) == 0 && in.Result == nil }

// Failed reports whether an initializer has refused the object.
func (in *Initializers) Failed() bool { return in != nil && in.Result != nil }

// Same reports whether both have the same pending initializers and result.
func (in *Initializers) Same(other *Initializers) bool {
	if in == nil || other == nil {
		return in == other
	}
	return string(in.encoded()) == string(other.encoded())
}

// Validate returns what is wrong with initializers that a client has sent.
func (in *Initializers) Validate() field.ErrorList {
	if in == nil {
		return nil
	}
	var errs field.ErrorList
	if len(in.Pending) > MaxPending {
		errs = append(errs, field.TooMany(Path().Child("pending"), len(in.Pending), MaxPending))
	}
	for i, p := range in.Pending {
		for _, problem := range validation.IsQualifiedName(p.Name) {
			errs = append(errs, field.Invalid(Path().Child("pending").Index(i).Child("name"), p.Name, problem))
		}
	}
	if in.Result != nil && in.Result.Status != metav1.StatusFailure {
		errs = append(errs, field.Invalid(Path().Child("result", "status"), in.Result.Status, "must be 'Failure'"))
	}
	return errs
}

// ValidateUpdate returns what is wrong with a change of an object's initializers. Only the first may be removed: the others have not acted yet.
func (in *Initializers) ValidateUpdate(old *Initializers) field.ErrorList {
	if in.Same(old) {
		return nil
	}
	if old == nil {
		return field.ErrorList{field.Invalid(Path(), nil, "field is immutable once initialization has completed")}
	}
	if old.Result != nil {
		return field.ErrorList{field.Invalid(Path().Child("result"), old.Result.Message, "field is immutable")}
	}
	before, after := old.Names(), in.Names()
	if len(before) > 0 && !slices.Equal(after, before) && !slices.Equal(after, before[1:]) {
		return field.ErrorList{field.Invalid(Path().Child("pending"), "["+strings.Join(after, " ")+"]",
			"only the first of the pending initializers may be removed, which is "+before[0])}
	}
	if in == nil {
		return nil
	}
	return in.Validate()
}

// DeepCopy returns a copy.
func (in *Initializers) DeepCopy() *Initializers {
	if in == nil {
		return nil
	}
	return &Initializers{Pending: slices.Clone(in.Pending), Result: in.Result.DeepCopy()}
}

// The fields of the messages.
const (
	metadataField, initializersField = 1, 16 // of an object, and of its metadata
	pendingField, resultField        = 1, 2
	nameField                        = 1
)

var errMalformed = errors.New("malformed initializers")

// encoded returns the message of the initializers.
func (in *Initializers) encoded() []byte {
	var b []byte
	for _, p := range in.Pending {
		b = appendField(b, pendingField, appendField(nil, nameField, []byte(p.Name)))
	}
	if in.Result != nil {
		result, err := in.Result.Marshal()
		if err == nil { // a Status has nothing that cannot be encoded
			b = appendField(b, resultField, result)
		}
	}
	return b
}

// Marshal returns the message of the initializers.
func (in *Initializers) Marshal() ([]byte, error) { return in.encoded(), nil }

// Unmarshal adds what a message says.
func (in *Initializers) Unmarshal(message []byte) error {
	return eachField(message, func(number uint64, value []byte) error {
		switch number {
		case pendingField:
			var p Initializer
			if err := p.Unmarshal(value); err != nil {
				return err
			}
			in.Pending = append(in.Pending, p)
		case resultField:
			if in.Result == nil {
				in.Result = &metav1.Status{}
			}
			return in.Result.Unmarshal(value)
		}
		return nil
	})
}

// Unmarshal sets what a message says.
func (i *Initializer) Unmarshal(message []byte) error {
	return eachField(message, func(number uint64, value []byte) error {
		if number == nameField {
			i.Name = string(value)
		}
		return nil
	})
}

// Suffix returns what makes an object's message that of an object with these initializers, if it is appended to it: a second metadata that has nothing but
// the initializers. Protobuf merges both.
func (in *Initializers) Suffix() []byte {
	if in == nil {
		return nil
	}
	return appendField(nil, metadataField, appendField(nil, initializersField, in.encoded()))
}

// FromMessage returns the initializers that an object's message has; nil if it has none.
func FromMessage(message []byte) (*Initializers, error) {
	var in *Initializers
	err := eachField(message, func(number uint64, metadata []byte) error {
		if number != metadataField {
			return nil
		}
		return eachField(metadata, func(number uint64, value []byte) error {
			if number != initializersField {
				return nil
			}
			if in == nil {
				in = &Initializers{}
			}
			return in.Unmarshal(value)
		})
	})
	return in, err
}

// Has reports whether an object's message, as it is stored, ends with a Suffix. It looks at the fields of the root only.
func Has(message []byte) bool {
	metadata, last := 0, []byte(nil)
	err := eachField(message, func(number uint64, value []byte) error {
		last = nil
		if number == metadataField {
			metadata++
			last = value
		}
		return nil
	})
	if err != nil || metadata < 2 || len(last) < 2 {
		return false
	}
	tag, _ := binary.Uvarint(last)
	return tag == initializersField<<3|lengthDelimited
}

const (
	varint          = 0
	fixed64         = 1
	lengthDelimited = 2
	fixed32         = 5
)

// eachField calls f for the fields of a message that have a length.
func eachField(message []byte, f func(number uint64, value []byte) error) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return errMalformed
		}
		rest, end := message[n:], 0
		switch tag & 7 {
		case varint:
			_, end = binary.Uvarint(rest)
		case fixed64:
			end = 8
		case fixed32:
			end = 4
		case lengthDelimited:
			size, n := binary.Uvarint(rest)
			if n <= 0 || size > uint64(len(rest)-n) {
				return errMalformed
			}
			end = n + int(size)
			if err := f(tag>>3, rest[n:end]); err != nil {
				return err
			}
		}
		if end <= 0 || end > len(rest) {
			return errMalformed
		}
		message = rest[end:]
	}
	return nil
}

func appendField(b []byte, number uint64, value []byte) []byte {
	b = binary.AppendUvarint(b, number<<3|lengthDelimited)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}
