package environment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Expand puts values in the place of references of the form $(NAME). $$ stands for one $, so $$(NAME) is never a reference. Whatever is not
// a complete reference stays as it is.
func Expand(text string, value func(name string) string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				out.WriteString("$(")
				text = rest[1:]
				continue
			}
			out.WriteString(value(name))
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

// lookup finds names in the first of several sets that has them. What none has is left as the reference it was.
func lookup(sets ...map[string]string) func(string) string {
	return func(name string) string {
		for _, set := range sets {
			if value, ok := set[name]; ok {
				return value
			}
		}
		return "$(" + name + ")"
	}
}

// Command returns the container's command and arguments with its variables put in.
func Command(container *corev1.Container, variables []*runtimeapi.KeyValue) (command, args []string) {
	value := lookup(byName(variables))
	for _, word := range container.Command {
		command = append(command, Expand(word, value))
	}
	for _, word := range container.Args {
		args = append(args, Expand(word, value))
	}
	return command, args
}

// ExpandSubPath puts variables into a mount's subPathExpr. Unlike in a command a variable that is missing or empty is an error here: the
// mount would end up somewhere nobody meant.
func ExpandSubPath(expression string, variables []*runtimeapi.KeyValue) (string, error) {
	known, missing := byName(variables), map[string]bool{}
	expanded := Expand(expression, func(name string) string {
		if known[name] == "" {
			missing[name] = true
		}
		return known[name]
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return expanded, nil
}

func byName(variables []*runtimeapi.KeyValue) map[string]string {
	m := make(map[string]string, len(variables))
	for _, v := range variables {
		m[v.GetKey()] = string(v.GetValue())
	}
	return m
}
