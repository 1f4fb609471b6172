package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Script is a terminal session: commands, and what each is expected to print.
type Script struct {
	Name  string // the file's name without its extension, and the namespace the commands run in
	Path  string
	Steps []Step
}

// A Step is one command of a script.
type Step struct {
	Line    int    // the line of the command in the file
	Comment string // the lines above the command, as written
	Command string // the command for the shell; may have several lines
	Output  string // normalised, without a final newline; ends in [exit N] if the command failed
}

// Load reads a script.
func Load(path string) (*Script, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &Script{Name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), Path: path}
	if s.Steps, err = parse(string(text)); err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return s, nil
}

// Cluster reports whether the script needs controllers, a scheduler and three nodes.
func (s *Script) Cluster() bool { return filepath.Base(filepath.Dir(s.Path)) == "cluster" }

// Literals returns the text of all commands: a value that appears in it is the script's choice, not the server's.
func (s *Script) Literals() string {
	var b strings.Builder
	for _, step := range s.Steps {
		b.WriteString(step.Command)
		b.WriteByte('\n')
	}
	return b.String()
}

// Format returns the text that Load reads.
func (s *Script) Format() string {
	var b strings.Builder
	for i, step := range s.Steps {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(step.Comment)
		b.WriteString("$ " + strings.ReplaceAll(step.Command, "\n", "\n> ") + "\n")
		if step.Output != "" {
			b.WriteString(escape(step.Output) + "\n")
		}
	}
	return strings.ReplaceAll(b.String(), "\n> \n", "\n>\n")
}

// parse reads the lines of a script: comments (#), commands ($, continued with >), and output (all else).
func parse(text string) ([]Step, error) {
	var (
		steps   []Step
		comment strings.Builder
		output  []string
	)
	finish := func() {
		if len(steps) > 0 {
			steps[len(steps)-1].Output = unescape(strings.TrimRight(strings.Join(output, "\n"), "\n"))
		}
		output = nil
	}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			comment.WriteString(line + "\n")
		case strings.HasPrefix(line, "$ "):
			finish()
			steps = append(steps, Step{Line: i + 1, Comment: comment.String(), Command: line[2:]})
			comment.Reset()
		case strings.HasPrefix(line, ">"):
			if len(steps) == 0 || len(output) > 0 {
				return nil, fmt.Errorf("%d: a line that continues a command must follow it", i+1)
			}
			steps[len(steps)-1].Command += "\n" + strings.TrimPrefix(line[1:], " ")
		case comment.Len() > 0:
			if line != "" {
				return nil, fmt.Errorf("%d: expected a command after the comment", i+1)
			}
			comment.WriteString("\n") // a comment without a command
		case len(steps) == 0:
			if line != "" {
				return nil, fmt.Errorf("%d: output before the first command", i+1)
			}
		default:
			output = append(output, line)
		}
	}
	finish()
	return steps, nil
}

// escape marks the lines of output that would read as a comment or a command with a backslash.
func escape(output string) string {
	lines := strings.Split(output, "\n")
	for i, line := range lines {
		if line != "" && strings.ContainsRune(`#$>\`, rune(line[0])) {
			lines[i] = `\` + line
		}
	}
	return strings.Join(lines, "\n")
}

func unescape(output string) string {
	lines := strings.Split(output, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, `\`)
	}
	return strings.Join(lines, "\n")
}
