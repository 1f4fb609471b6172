package v1alpha1

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The messages are those that k8s.io/api had. They are few and small, so what writes and reads them is short rather than fast.

var errMalformed = errors.New("malformed message of an InitializerConfiguration")

// Marshal returns the object's message.
func (c *InitializerConfiguration) Marshal() ([]byte, error) {
	metadata, err := c.ObjectMeta.Marshal()
	if err != nil {
		return nil, err
	}
	b := appendField(nil, 1, metadata)
	for i := range c.Initializers {
		b = appendField(b, 2, c.Initializers[i].encoded())
	}
	return b, nil
}

// Size returns the size of the object's message.
func (c *InitializerConfiguration) Size() int {
	b, err := c.Marshal()
	if err != nil {
		return 0
	}
	return len(b)
}

// MarshalTo writes the object's message to the beginning of b.
func (c *InitializerConfiguration) MarshalTo(b []byte) (int, error) {
	message, err := c.Marshal()
	if err != nil {
		return 0, err
	}
	if len(message) > len(b) {
		return 0, fmt.Errorf("the message of the InitializerConfiguration has %d bytes, the buffer %d", len(message), len(b))
	}
	return copy(b, message), nil
}

// MarshalToSizedBuffer writes the object's message to the end of b.
func (c *InitializerConfiguration) MarshalToSizedBuffer(b []byte) (int, error) {
	size := c.Size()
	if size > len(b) {
		return 0, fmt.Errorf("the message of the InitializerConfiguration has %d bytes, the buffer %d", size, len(b))
	}
	return c.MarshalTo(b[len(b)-size:])
}

// Unmarshal adds what a message says to the object.
func (c *InitializerConfiguration) Unmarshal(message []byte) error {
	return eachField(message, func(number uint64, value []byte) error {
		switch number {
		case 1:
			return c.ObjectMeta.Unmarshal(value)
		case 2:
			var i Initializer
			if err := i.Unmarshal(value); err != nil {
				return err
			}
			c.Initializers = append(c.Initializers, i)
		}
		return nil
	})
}

// Unmarshal adds what a message says to the list.
func (l *InitializerConfigurationList) Unmarshal(message []byte) error {
	return eachField(message, func(number uint64, value []byte) error {
		switch number {
		case 1:
			return l.ListMeta.Unmarshal(value)
		case 2:
			var c InitializerConfiguration
			if err := c.Unmarshal(value); err != nil {
				return err
			}
			l.Items = append(l.Items, c)
		}
		return nil
	})
}

func (i *Initializer) encoded() []byte {
	b := appendField(nil, 1, []byte(i.Name))
	for _, r := range i.Rules {
		var rule []byte
		for number, list := range [][]string{1: r.APIGroups, 2: r.APIVersions, 3: r.Resources} {
			for _, s := range list {
				rule = appendField(rule, uint64(number), []byte(s))
			}
		}
		b = appendField(b, 2, rule)
	}
	return b
}

// Unmarshal adds what a message says to the initializer.
func (i *Initializer) Unmarshal(message []byte) error {
	return eachField(message, func(number uint64, value []byte) error {
		switch number {
		case 1:
			i.Name = string(value)
		case 2:
			var r Rule
			if err := r.Unmarshal(value); err != nil {
				return err
			}
			i.Rules = append(i.Rules, r)
		}
		return nil
	})
}

// Unmarshal adds what a message says to the rule.
func (r *Rule) Unmarshal(message []byte) error {
	return eachField(message, func(number uint64, value []byte) error {
		switch number {
		case 1:
			r.APIGroups = append(r.APIGroups, string(value))
		case 2:
			r.APIVersions = append(r.APIVersions, string(value))
		case 3:
			r.Resources = append(r.Resources, string(value))
		}
		return nil
	})
}

const lengthDelimited = 2

// eachField calls f for the fields of a message that have a length, and skips numbers.
func eachField(message []byte, f func(number uint64, value []byte) error) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return errMalformed
		}
		rest, end := message[n:], 0
		switch tag & 7 {
		case 0:
			_, end = binary.Uvarint(rest)
		case 1:
			end = 8
		case 5:
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
