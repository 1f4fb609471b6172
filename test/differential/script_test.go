package differential

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	const text = `# First.
$ kubectl get cm
NAME   DATA

after a blank line
[exit 1]

# Second,
# on two lines.
$ kubectl apply -f - <<END
> a: b
>
> END
\# not a comment
\$ not a command
\\ a backslash

$ true
`
	want := []Step{
		{Line: 2, Comment: "# First.\n", Command: "kubectl get cm", Output: "NAME   DATA\n\nafter a blank line\n[exit 1]"},
		{Line: 10, Comment: "# Second,\n# on two lines.\n", Command: "kubectl apply -f - <<END\na: b\n\nEND", Output: "# not a comment\n$ not a command\n\\ a backslash"},
		{Line: 18, Command: "true"},
	}
	got, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parse (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(text, (&Script{Steps: got}).Format()); diff != "" {
		t.Errorf("Format (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"output first\n",
		"> continued\n",
		"$ true\noutput\n> late\n",
		"# comment\noutput\n",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("parse(%q) found nothing wrong", text)
		}
	}
}

// TestScriptsAreFormatted: recording rewrites whole files, so Format must return what Load read, except for outputs.
func TestScriptsAreFormatted(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.script")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		script, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), script.Format()); diff != "" {
			t.Errorf("%s (-file +formatted):\n%s", path, diff)
		}
	}
}
