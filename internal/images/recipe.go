package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// step is one instruction of a recipe.
type step struct {
	line  int
	verb  string   // in capitals
	rest  string   // the line after the verb
	words []string // the words of rest, without quotes
}

func parseSteps(text string) ([]step, error) {
	var out []step
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		at, line := i+1, strings.TrimSpace(lines[i])
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for strings.HasSuffix(line, "\\") && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, "\\")
			if next := strings.TrimSpace(lines[i]); !strings.HasPrefix(next, "#") {
				line += " " + next
			} else {
				line += "\\"
			}
		}
		verb, rest, _ := strings.Cut(line, " ")
		s := step{line: at, verb: strings.ToUpper(verb), rest: strings.TrimSpace(rest)}
		if s.rest == "" {
			return nil, fmt.Errorf("line %d: %s takes arguments", at, s.verb)
		}
		var err error
		if s.words, err = split(s.rest); err != nil {
			return nil, fmt.Errorf("line %d: %w", at, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// split splits a line at spaces outside quotes.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	inWord, escaped := false, false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, inWord = r, true
		case quote == 0 && (r == ' ' || r == '\t'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// command returns a command: a list in JSON, or a line for the shell.
func (s step) command() []string {
	var list []string
	if json.Unmarshal([]byte(s.rest), &list) == nil {
		return list
	}
	return []string{"/bin/sh", "-c", s.rest}
}

// list returns a list in JSON, or the words.
func (s step) list() []string {
	var list []string
	if json.Unmarshal([]byte(s.rest), &list) == nil {
		return list
	}
	return s.words
}

// pairs calls f with each key=value, or with one key and the rest of the line.
func (s step) pairs(f func(k, v string)) error {
	if len(s.words) >= 2 && !strings.Contains(s.words[0], "=") {
		f(s.words[0], strings.TrimSpace(s.rest[len(s.words[0]):]))
		return nil
	}
	for _, w := range s.words {
		k, v, ok := strings.Cut(w, "=")
		if !ok || k == "" {
			return fmt.Errorf("%q is not of the form key=value", w)
		}
		f(k, v)
	}
	return nil
}
