package skiff

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
	"skiff/internal/catalog/metrics"
)

var update = flag.Bool("update", false, "write docs/status.md anew")

// TestStatus checks that docs/status.md is what the catalog and test/e2e/conformance.txt say: which resources are complete, and which test of
// ours checks what the conformance suite checks. With -update it writes the document.
func TestStatus(t *testing.T) {
	const file = "docs/status.md"
	want := resourceTable(slices.Concat(all.Resources(), all.Former(), metrics.Resources())) + conformanceTable(t)
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
		t.Errorf("%s is not what the catalog and the list of tests say: go test . -run TestStatus -update", file)
	}
}

// resourceTable returns the part of the document about resources.
func resourceTable(infos []*catalog.Info) string {
	var out strings.Builder
	out.WriteString(`# What is complete

A resource is complete when its defaults, its validation on create, update and status (with upstream's field paths and messages) and its table columns are upstream's. All are served with every verb of discovery.
What is stored and not enforced says so here, and in a Warning header to whoever writes it.

Do not edit: ` + "`go test . -run TestStatus -update`" + ` writes this page from the catalog and test/e2e/conformance.txt.

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
		if i.Unenforced != "" {
			state += "; stored, but skiff does not enforce " + i.Unenforced + " yet"
		}
		group := i.GVK.GroupVersion().String()
		fmt.Fprintf(&out, "| %s | %s | %s |\n", group, i.GVR.Resource, state)
	}
	fmt.Fprintf(&out, "\n%d of %d complete.\n", complete, len(infos))
	return out.String()
}

// conformanceTable returns the part of the document about upstream's conformance suite.
func conformanceTable(t *testing.T) string {
	t.Helper()
	tests := conformanceTests(t)
	var out strings.Builder
	out.WriteString(`
## What the conformance suite checks

Each row is a title of upstream's conformance suite about workloads and scheduling, and our test that checks the same thing, on hollow nodes where it takes nodes. What upstream's own suite says with real ones is in [conformance.md](conformance.md).

| title | our test |
|---|---|
`)
	checked := 0
	titles := nonEmptyLines(t, "test/e2e/testdata/titles-v1.37.1.txt")
	for _, title := range titles {
		test, ok := tests[title]
		switch {
		case !ok:
			t.Errorf("test/e2e/conformance.txt: %s is missing", title)
		case !strings.HasPrefix(test, "later: "):
			checked++
			if err := checkTestExists(test); err != nil {
				t.Errorf("test/e2e/conformance.txt: %s: %v", title, err)
			}
		}
		delete(tests, title)
		fmt.Fprintf(&out, "| %s | %s |\n", title, test)
	}
	for title := range tests {
		t.Errorf("test/e2e/conformance.txt: upstream has no %s", title)
	}
	fmt.Fprintf(&out, "\n%d of %d checked.\n", checked, len(titles))
	return out.String()
}

// conformanceTests reads test/e2e/conformance.txt, which has a test for each title, on the line after it.
func conformanceTests(t *testing.T) map[string]string {
	t.Helper()
	tests, title := map[string]string{}, ""
	for _, line := range nonEmptyLines(t, "test/e2e/conformance.txt") {
		test, isTest := strings.CutPrefix(line, "    ")
		switch {
		case strings.HasPrefix(line, "#"):
		case isTest && title != "":
			tests[title], title = test, ""
		case !isTest && title == "" && tests[line] == "":
			title = line
		default:
			t.Fatalf("test/e2e/conformance.txt: each title once, and then its test: %s", line)
		}
	}
	return tests
}

// nonEmptyLines returns the lines of a file that are not empty.
func nonEmptyLines(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(data), "\n"), func(line string) bool { return line == "" })
}

// checkTestExists returns an error unless there is the test that is named: "DIRECTORY TestFunction", or "FILE: the first line of a story".
func checkTestExists(test string) error {
	if file, story, ok := strings.Cut(test, ": "); ok {
		data, err := os.ReadFile(file)
		if err == nil && !strings.Contains(string(data), "# "+story+"\n") {
			err = fmt.Errorf("%s has no story %q", file, story)
		}
		return err
	}
	dir, function, ok := strings.Cut(test, " ")
	if !ok {
		return fmt.Errorf("%q is neither a test function nor a story", test)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(data), "\nfunc "+function+"(t *testing.T) {") {
			return nil
		}
	}
	return fmt.Errorf("%s has no %s", dir, function)
}
