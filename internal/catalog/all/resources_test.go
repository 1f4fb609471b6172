package all

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"skiff/internal/catalog"
)

// TestDiscovery compares the declarations with the discovery documents of an upstream server.
func TestDiscovery(t *testing.T) {
	data, err := os.ReadFile("testdata/discovery.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(data)) {
		want = append(want, strings.TrimSpace(line))
	}
	var got []string
	for _, info := range Resources() {
		got = append(got, discovered(info)...)
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("too much: %s", line)
		}
	}
	if !t.Failed() && !slices.Equal(got, want) {
		t.Error("the order differs from that of testdata/discovery.txt")
	}
}

// discovered returns the lines of discovery for a resource and its subresources.
func discovered(i *catalog.Info) []string {
	gv := i.GVK.GroupVersion().String()
	line := func(name, kind string, verbs []string) string {
		return fmt.Sprintf("%s %s kind=%s namespaced=%t verbs=%s", gv, name, kind, i.Namespaced, strings.Join(slices.Sorted(slices.Values(verbs)), ","))
	}
	main := line(i.GVR.Resource, i.GVK.Kind, i.Verbs)
	if len(i.Short) > 0 {
		main += " short=" + strings.Join(i.Short, ",")
	}
	if len(i.Categories) > 0 {
		main += " categories=" + strings.Join(i.Categories, ",")
	}
	var subs []string
	for _, e := range i.Edits {
		subs = append(subs, line(i.GVR.Resource+"/"+e.Name, i.GVK.Kind, e.Verbs))
	}
	if i.Scale != nil {
		subs = append(subs, line(i.GVR.Resource+"/scale", "Scale", []string{"get", "patch", "update"})+" group=autoscaling/v1")
	}
	for _, s := range i.Subresources {
		sub := line(i.GVR.Resource+"/"+s.Name, s.Kind, s.Verbs)
		if s.Group != "" {
			sub += " group=" + s.Group + "/" + s.Version
		}
		subs = append(subs, sub)
	}
	slices.Sort(subs)
	return append([]string{main}, subs...)
}

// TestDeclared checks that every declaration has what the server needs.
func TestDeclared(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range Resources() {
		name := i.GVR.String()
		if seen[name] {
			t.Errorf("%s is declared twice", name)
		}
		seen[name] = true
		if i.Complete == (i.Missing != "") {
			t.Errorf("%s: either Complete or Missing must be said", name)
		}
		if i.Virtual {
			continue
		}
		if i.Name == nil {
			t.Errorf("%s has no rule for names", name)
		}
		if _, ok := i.New().(catalog.Object); !ok {
			t.Errorf("%s: %T cannot be stored", name, i.New())
		}
		// The functions must not panic on an empty object.
		obj := i.New()
		i.Default(obj)
		stored := i.ToStored(obj.(catalog.Object))
		i.Stored.Default(stored)
		i.FromStored(stored)
	}
}
