package plugins_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/initialresources"
	"skiff/internal/apiserver/admission/plugins"
)

// TestOrderIsUpstreams compares which plugins there are, their order and which are on by default with upstream's. Only InitialResources is skiff's own.
func TestOrderIsUpstreams(t *testing.T) {
	text, err := os.ReadFile("testdata/upstream.txt")
	if err != nil {
		t.Fatal(err)
	}
	var names, on []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var name, is string
		if _, err := fmt.Sscan(line, &name, &is); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		names = append(names, name)
		if is == "on" {
			on = append(on, name)
		}
	}
	if len(names) < 39 || len(on) < 25 {
		t.Fatalf("only %d plugins of upstream are known, %d on", len(names), len(on))
	}
	former := func(name string) bool { return name == initialresources.Name || name == admission.InitializersPlugin }
	ours := slices.DeleteFunc(plugins.Names(), former)
	if !slices.Equal(ours, names) {
		t.Errorf("there are %v\nupstream has %v", ours, names)
	}
	if ours := slices.DeleteFunc(plugins.On(), former); !slices.Equal(ours, on) {
		t.Errorf("on are %v\nupstream has %v", ours, on)
	}
}
