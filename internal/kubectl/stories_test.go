package kubectl

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what comes out into the stories")

// stories tells a file of stories: comments, command lines, a line of dashes, what comes of them; an empty line ends each. With -update what
// comes of them is written into the file, to be read before it is believed.
func stories(t *testing.T, file string, tell func(input string) string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, story := range strings.Split(strings.TrimSpace(string(b)), "\n\n") {
		above, want, ok := strings.Cut(story+"\n", "----\n")
		if !ok {
			t.Fatalf("%s: no line of dashes in\n%s", file, story)
		}
		input := ""
		for line := range strings.Lines(above) {
			if !strings.HasPrefix(line, "#") {
				input += line
			}
		}
		got := tell(input)
		told = append(told, above+"----\n"+got)
		if got != want && !*update {
			t.Errorf("%s:\n%s----\n%s\nwant:\n%s", file, above, got, want)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(told, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
