package all

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// entry is a line of a list: a name and, after a colon, what is said about it.
type entry struct{ line, says string }

func entries(t *testing.T, file string) map[string]entry {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]entry{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, says, _ := strings.Cut(line, ": ")
		if _, twice := found[name]; twice {
			t.Errorf("%s has %s twice", file, name)
		}
		found[name] = entry{line, says}
	}
	return found
}

// Every loop of upstream is here, or it says why not; every other loop says what it is for.
func TestUpstreamsLoops(t *testing.T) {
	const absentFile, ownFile = "testdata/absent.txt", "testdata/own.txt"
	upstream, absent, own := entries(t, "testdata/upstream.txt"), entries(t, absentFile), entries(t, ownFile)
	for _, name := range slices.Sorted(maps.Keys(upstream)) {
		switch e, listed := absent[name]; {
		case slices.Contains(Names(), name) && listed:
			t.Errorf("%s is there now: delete this line of internal/controller/all/%s:\n%s", name, absentFile, e.line)
		case !slices.Contains(Names(), name) && !listed:
			t.Errorf("upstream has %s: add it to the list in all.go, or to internal/controller/all/%s with the reason why it is absent", name, absentFile)
		case listed && e.says == "":
			t.Errorf("internal/controller/all/%s does not say why %s is absent", absentFile, name)
		}
	}
	for _, name := range Names() {
		if _, known := upstream[name]; !known && own[name].says == "" {
			t.Errorf("upstream has no %s: add it to internal/controller/all/%s with what it is for", name, ownFile)
		}
	}
	for name, e := range own {
		if _, known := upstream[name]; known || !slices.Contains(Names(), name) {
			t.Errorf("delete this line of internal/controller/all/%s, as the loop is upstream's or not there:\n%s", ownFile, e.line)
		}
	}
	for name, e := range absent {
		if _, known := upstream[name]; !known {
			t.Errorf("delete this line of internal/controller/all/%s, as upstream has no such loop:\n%s", absentFile, e.line)
		}
	}
}
