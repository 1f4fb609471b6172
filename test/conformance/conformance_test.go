package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocument: docs/conformance.md has the result of every spec that was run, and nothing else.
func TestDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for part := range strings.SplitSeq(string(doc), "\n## ") {
		name, rest, _ := strings.Cut(part, "\n")
		sections[name] = rest
	}
	files, err := filepath.Glob("results/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no results", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		want := results(t, file)
		got := rows(sections[name])
		for title, result := range want {
			if got[title] != result {
				t.Errorf("%s: %s %s, and docs/conformance.md says %q", name, title, result, got[title])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: docs/conformance.md has %d specs, %s has %d", name, len(got), file, len(want))
		}
	}
}

// results returns the results of specs by title. Indented lines are the reason.
func results(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSpace(line), " ", 3); len(f) == 3 && line[0] != '#' && line[0] != ' ' {
			out[f[2]] = f[0]
		}
	}
	return out
}

// rows returns the results of specs in a table: | result | seconds | title: reason |
func rows(section string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(section) {
		f := strings.SplitN(strings.Trim(strings.TrimSpace(line), "|"), " | ", 3)
		if len(f) < 3 || strings.TrimSpace(f[0]) == "result" {
			continue
		}
		title, _, _ := strings.Cut(strings.TrimSpace(f[2]), "<br>")
		out[strings.ReplaceAll(title, `\`, "")] = strings.Trim(strings.TrimSpace(f[0]), "*")
	}
	return out
}
