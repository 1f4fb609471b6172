package encryption

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// object is upstream's message EncryptedObject: a value that a KMS provider has encrypted, and the source of the key, which the plugin has encrypted.
type object struct {
	data []byte
	source
}

// source is what a key is made of, encrypted by a plugin.
type source struct {
	keyID       string // of the plugin's key
	encrypted   []byte
	annotations map[string][]byte // which the plugin wants to see again
	seeded      bool              // it is a seed for seeded; else a key for gcm
}

// The bounds of what a plugin may answer.
const (
	maxKeyID       = 1 << 10
	maxSource      = 1 << 10
	maxAnnotations = 32 << 10
)

// Field numbers of EncryptedObject.
const (
	dataField protowire.Number = iota + 1
	keyIDField
	sourceField
	annotationsField
	typeField
)

// appendTo appends the fields of a source, which follow the data of an object.
func (s *source) appendTo(b []byte) []byte {
	b = appendBytes(b, keyIDField, []byte(s.keyID))
	b = appendBytes(b, sourceField, s.encrypted)
	for _, name := range slices.Sorted(maps.Keys(s.annotations)) {
		entry := appendBytes(nil, 1, []byte(name))
		b = appendBytes(b, annotationsField, appendBytes(entry, 2, s.annotations[name]))
	}
	if s.seeded {
		b = protowire.AppendVarint(protowire.AppendTag(b, typeField, protowire.VarintType), 1)
	}
	return b
}

func appendBytes(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

// parseObject decodes and checks a stored object. What it returns refers to b.
func parseObject(b []byte) (o object, err error) {
	var kind uint64
	err = eachField(b, func(number protowire.Number, value []byte, varint uint64) error {
		switch number {
		case dataField:
			o.data = value
		case keyIDField:
			if !utf8.Valid(value) {
				return errors.New("string field contains invalid UTF-8")
			}
			o.keyID = string(value)
		case sourceField:
			o.encrypted = value
		case annotationsField:
			var name string
			var content []byte
			err := eachField(value, func(number protowire.Number, value []byte, _ uint64) error {
				switch number {
				case 1:
					name = string(value)
				case 2:
					content = value
				}
				return nil
			})
			if err != nil || !utf8.ValidString(name) {
				return errors.Join(err, errors.New("malformed annotation"))
			}
			if o.annotations == nil {
				o.annotations = map[string][]byte{}
			}
			o.annotations[name] = content
		case typeField:
			kind = varint
		}
		return nil
	})
	if err != nil {
		return object{}, fmt.Errorf("malformed encrypted object: %w", err)
	}
	if int32(kind) != 0 && int32(kind) != 1 {
		return object{}, fmt.Errorf("unknown encryptedDEKSourceType: %d", int32(kind))
	}
	o.seeded = int32(kind) == 1
	if len(o.data) == 0 {
		return object{}, errors.New("encrypted data is empty")
	}
	return o, o.source.check()
}

// eachField calls f for the fields of a message that EncryptedObject has, by number and wire type.
func eachField(b []byte, f func(number protowire.Number, value []byte, varint uint64) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var value []byte
		var varint uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if known := kind == protowire.BytesType && number != typeField || kind == protowire.VarintType && number == typeField; !known {
			continue
		}
		if err := f(number, value, varint); err != nil {
			return err
		}
	}
	return nil
}

// check returns what is wrong with a source, in upstream's words.
func (s *source) check() error {
	switch {
	case len(s.encrypted) == 0:
		return errors.New("failed to validate encrypted DEK source: encrypted DEK source is empty")
	case len(s.encrypted) > maxSource:
		return fmt.Errorf("failed to validate encrypted DEK source: encrypted DEK source is %d bytes, which exceeds the max size of %d", len(s.encrypted), maxSource)
	}
	if _, err := checkKeyID(s.keyID); err != nil {
		return fmt.Errorf("failed to validate key id: %w", err)
	}
	var errs []error
	size := 0
	for _, name := range slices.Sorted(maps.Keys(s.annotations)) {
		if problems := validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), name); len(problems) > 0 {
			errs = append(errs, problems.ToAggregate())
		}
		size += len(name) + len(s.annotations[name])
	}
	if size > maxAnnotations {
		errs = append(errs, fmt.Errorf("total size of annotations is %d, which exceeds the max size of %d", size, maxAnnotations))
	}
	if len(errs) > 0 {
		return fmt.Errorf("failed to validate annotations: %w", utilerrors.NewAggregate(errs))
	}
	return nil
}

// checkKeyID returns what is wrong with the id of a plugin's key, and the code of that for metrics.
func checkKeyID(id string) (code string, err error) {
	switch {
	case id == "":
		return "empty", errors.New("keyID is empty")
	case len(id) > maxKeyID:
		return "too_long", fmt.Errorf("keyID is %d bytes, which exceeds the max size of %d", len(id), maxKeyID)
	}
	return "ok", nil
}
