package check

import (
	"fmt"
	"io"
)

// Level is the severity of a finding.
type Level int

// OK is as it should be, Note works with restrictions, Problem keeps skiff from running a node.
const (
	OK Level = iota
	Note
	Problem
)

// String returns the level as Print shows it.
func (l Level) String() string { return [...]string{"ok", "note", "problem"}[l] }

// Finding is the result of one check.
type Finding struct {
	Level  Level
	What   string // what was checked
	Detail string // what was found
	Fix    string // what to do about it; empty if it is OK
}

// Options say what the machine is to run.
type Options struct {
	DataDir string
	// Ports are the TCP ports that must be free, each with the name of what listens there.
	Ports map[int]string
	// Running says that the cluster of this data directory runs already, which has its ports in use.
	Running bool
}

// Print writes findings for people to read, and returns how many problems there are.
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
