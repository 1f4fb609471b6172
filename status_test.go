package skiff

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
)

var update = flag.Bool("update", false, "write docs/status.md anew")

// docs/status.md says of every resource what is complete. It is written from the catalog: go test . -run TestStatus -update
func TestStatus(t *testing.T) {
	const file = "docs/status.md"
	want := status(all.Resources())
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the catalog says: go test . -run TestStatus -update", file)
	}
}

func status(infos []*catalog.Info) string {
	var out strings.Builder
	out.WriteString(`# What is complete

Written by ` + "`go test . -run TestStatus -update`" + ` from the catalog; do not edit. A resource is complete when its defaults, its validation on create, update and
status (with upstream's field paths and messages) and its table columns are upstream's. All are served with every verb of discovery.
Not served yet: apiextensions.k8s.io, apiregistration.k8s.io, storagemigration.k8s.io.

| group | resource | state |
|---|---|---|
`)
	complete := 0
	for _, i := range infos {
		state := "complete"
		if !i.Complete {
			state = i.Missing
			if state == "" {
				state = "defaults, metadata, required fields and formats"
			}
		} else {
			complete++
		}
		group := i.GVK.GroupVersion().String()
		fmt.Fprintf(&out, "| %s | %s | %s |\n", group, i.GVR.Resource, state)
	}
	fmt.Fprintf(&out, "\n%d of %d complete.\n", complete, len(infos))
	return out.String()
}
