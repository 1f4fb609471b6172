package gnostic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

var errTruncated = errors.New("the document ends too early")

// Members calls f for each member of a JSON object, with the bytes of its value, which are a part of the object's. It does not check that
// they are valid JSON.
func Members(object []byte, f func(name string, value []byte) error) error { return members(object, f) }

// members calls f for each member of a JSON object, with the bytes of its value.
func members(object []byte, f func(name string, value []byte) error) error {
	rest, err := open(object, '{')
	for err == nil && rest[0] != '}' {
		var name string
		var value []byte
		if value, rest, err = next(rest); err != nil {
			break
		}
		if name, err = text(value); err != nil {
			break
		}
		if rest = space(rest); len(rest) == 0 || rest[0] != ':' {
			return fmt.Errorf("no colon after %q", name)
		}
		if value, rest, err = next(rest[1:]); err != nil {
			break
		}
		if err = f(name, value); err == nil {
			rest, err = comma(rest, '}')
		}
	}
	return err
}

// elements calls f for each element of a JSON array, or once for any other value: some members of OpenAPI v2 can be either.
func elements(array []byte, f func(value []byte) error) error {
	if array = space(array); len(array) > 0 && array[0] != '[' {
		return f(array)
	}
	rest, err := open(array, '[')
	for err == nil && rest[0] != ']' {
		var value []byte
		if value, rest, err = next(rest); err != nil {
			break
		}
		if err = f(value); err == nil {
			rest, err = comma(rest, ']')
		}
	}
	return err
}

// member returns the value of a member of a JSON object, nil if it has none of that name.
func member(object []byte, name string) (found []byte, err error) {
	err = members(object, func(n string, value []byte) error {
		if n == name {
			found = value
		}
		return nil
	})
	return found, err
}

// text decodes a JSON string.
func text(value []byte) (string, error) {
	if len(value) < 2 || value[0] != '"' {
		return "", fmt.Errorf("%.20q is not a string", value)
	}
	if inside := value[1 : len(value)-1]; bytes.IndexByte(inside, '\\') < 0 {
		return string(inside), nil
	}
	var s string
	err := json.Unmarshal(value, &s)
	return s, err
}

// open returns what follows the opening bracket of an object or array.
func open(value []byte, bracket byte) ([]byte, error) {
	if value = space(value); len(value) == 0 || value[0] != bracket {
		return nil, fmt.Errorf("%.20q does not start with %c", value, bracket)
	}
	if value = space(value[1:]); len(value) == 0 {
		return nil, errTruncated
	}
	return value, nil
}

// comma returns what follows the comma between two members or elements, or the closing bracket.
func comma(rest []byte, end byte) ([]byte, error) {
	if rest = space(rest); len(rest) == 0 {
		return nil, errTruncated
	}
	switch rest[0] {
	case end:
		return rest, nil
	case ',':
		if rest = space(rest[1:]); len(rest) == 0 {
			return nil, errTruncated
		}
		return rest, nil
	default:
		return nil, fmt.Errorf("%.20q where a comma or %c is expected", rest, end)
	}
}

// next returns the value at the beginning of data, and the rest.
func next(data []byte) (value, rest []byte, err error) {
	data = space(data)
	if len(data) == 0 {
		return nil, nil, errTruncated
	}
	end := 0
	switch data[0] {
	case '"':
		end = endOfString(data)
	case '{', '[':
		end = endOfNested(data)
	default:
		for end = 0; end < len(data) && bytes.IndexByte(delimiters, data[end]) < 0; end++ {
		}
	}
	if end <= 0 {
		return nil, nil, errTruncated
	}
	return data[:end], data[end:], nil
}

var delimiters = []byte(",:]} \t\r\n")

func endOfString(data []byte) int {
	for i := 1; i < len(data); {
		quote := bytes.IndexByte(data[i:], '"')
		if quote < 0 {
			return -1
		}
		i += quote + 1
		escapes := 0
		for data[i-2-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
	}
	return -1
}

func endOfNested(data []byte) int {
	depth := 0
	for i := 0; i < len(data); {
		switch data[i] {
		case '"':
			end := endOfString(data[i:])
			if end < 0 {
				return -1
			}
			i += end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

func space(data []byte) []byte {
	for len(data) > 0 && (data[0] == ' ' || data[0] == '\n' || data[0] == '\t' || data[0] == '\r') {
		data = data[1:]
	}
	return data
}
