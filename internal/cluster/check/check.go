// Package check looks whether a machine can run a node, and says what to do where it cannot.
package check

import (
	"fmt"
	"io"
)

// A Level says how bad a finding is.
type Level int

// OK is as it should be, Note works with less, Problem keeps skiff from running a node.
const (
	OK Level = iota
	Note
	Problem
)

func (l Level) String() string { return [...]string{"ok", "note", "problem"}[l] }

// A Finding is what was found out about one thing.
type Finding struct {
	Level  Level
	What   string // what was looked at
	Detail string // what was found
	Fix    string // what to do about it, unless it is OK
}

// Options say what the machine is to run.
type Options struct {
	DataDir string
	// Ports are the TCP ports that must be free, by what they are for.
	Ports map[int]string
	// Running says that the cluster of this data directory runs already: its ports are taken by itself.
	Running bool
}

// Print writes findings for people to read and returns how many problems there are.
func Print(out io.Writer, findings []Finding) (problems int) {
	for _, f := range findings {
		fmt.Fprintf(out, "  %-8s %-14s %s\n", f.Level, f.What, f.Detail)
		if f.Level != OK && f.Fix != "" {
			fmt.Fprintf(out, "  %-8s %-14s -> %s\n", "", "", f.Fix)
		}
		if f.Level == Problem {
			problems++
		}
	}
	return problems
}

func ok(what, format string, args ...any) Finding {
	return Finding{What: what, Detail: fmt.Sprintf(format, args...)}
}

func note(what, fix, format string, args ...any) Finding {
	return Finding{Level: Note, What: what, Detail: fmt.Sprintf(format, args...), Fix: fix}
}

func problem(what, fix, format string, args ...any) Finding {
	return Finding{Level: Problem, What: what, Detail: fmt.Sprintf(format, args...), Fix: fix}
}
