package skiff

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLinks checks every link of the documents to a file of the tree: the file exists, a Go file declares the identifier that the link's
// fragment names ("Name" or "Type.Method"), and a document has the heading that it names.
func TestLinks(t *testing.T) {
	checked := 0
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range linksOf(string(text)) {
			checked++
			if err := checkLink(document, target); err != nil {
				t.Errorf("%s: link to %s: %v", document, target, err)
			}
		}
	}
	if checked == 0 {
		t.Error("no document has a link: the pattern for links is wrong")
	}
}

// TestWrongLinks shows that checkLink refuses each kind of wrong link.
func TestWrongLinks(t *testing.T) {
	for _, c := range []struct{ target, problem string }{
		{"../house_test.go#TestImportRules", ""},
		{"../house_test.go#goPackage", ""},
		{"../internal/store/store.go#Store.Put", ""},
		{"../internal/store/etcd/store.go#Store.Put", ""},
		{"decisions/", ""},
		{"guide.md", ""},
		{"missing.md", "no such file"},
		{"../house_test.go#TestMissing", "does not declare TestMissing"},
		{"../internal/store/etcd/store.go#Put", "does not declare Put"},
		{"../internal/store/store.go#Store.Missing", "does not declare Store.Missing"},
		{"../doc.go#L3", "does not declare L3"},
		{"guide.md#no-such-heading", "has no heading"},
		{"../Makefile#test", "only Go files and documents"},
		{"../../etc/passwd", "outside of the tree"},
	} {
		err := checkLink("docs/any.md", c.target)
		if (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: got %v, want %q", c.target, err, c.problem)
		}
	}
}

// TestCommands checks every `go test ./PACKAGE -run NAME` (or -bench) of the documents: the package exists, and has a test of each name.
func TestCommands(t *testing.T) {
	checked := 0
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testCommand.FindAllStringSubmatch(string(text), -1) {
			checked++
			pattern := strings.ReplaceAll(strings.Trim(match[2], "'"), `\|`, "|") // a table's cells have their bars escaped
			if err := checkTests(match[1], pattern); err != nil {
				t.Errorf("%s: %s: %v", document, match[0], err)
			}
		}
	}
	if checked == 0 {
		t.Error("no document has a command: the pattern for commands is wrong")
	}
}

var (
	testCommand  = regexp.MustCompile("go test (\\./[^ `]+) (?:-run|-bench) ('[^'`]+'|[^ `\n]+)")
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w*)\(`)
)

// TestNamedTests checks that every test that a document names exists somewhere in the tree: security.md names one for each promise.
func TestNamedTests(t *testing.T) {
	out, err := exec.Command("git", "grep", "-hoE", `^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]*\(`, "--", "*.go").Output()
	if err != nil {
		t.Fatalf("git grep: %v", err)
	}
	exists := map[string]bool{}
	for _, match := range testFunction.FindAllStringSubmatch(string(out), -1) {
		exists[match[1]] = true
	}
	for _, document := range documents(t) {
		if document == "docs/bugs.md" || document == "docs/flakes.md" {
			continue // they also name tests as they were then; their commands are checked by TestCommands
		}
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range testName.FindAllString(string(text), -1) {
			if !exists[name] {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
	}
}

var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*\b`)

// TestNamedFiles checks that every source file that a document names in backticks exists: `x.go` anywhere in the tree, `internal/x/y*.go` there.
func TestNamedFiles(t *testing.T) {
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := strings.Fields(string(out))
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range namedFile.FindAllStringSubmatch(string(text), -1) {
			pattern := match[1]
			if !slices.ContainsFunc(files, func(file string) bool { return endsWithPath(file, pattern) }) {
				t.Errorf("%s names the file %s, which does not exist", document, pattern)
			}
		}
	}
}

var namedFile = regexp.MustCompile("`([\\w*-][\\w./*-]*\\.(?:go|sh|py|c))`")

// endsWithPath reports whether the last elements of a path match a pattern.
func endsWithPath(file, pattern string) bool {
	elements, depth := strings.Split(file, "/"), strings.Count(pattern, "/")+1
	if len(elements) < depth {
		return false
	}
	matches, err := filepath.Match(pattern, strings.Join(elements[len(elements)-depth:], "/"))
	return err == nil && matches
}

// checkTests returns an error unless the package, or with /... one below it, has a test for each alternative of a pattern.
func checkTests(pkg, pattern string) error {
	dir, deep := strings.CutSuffix(pkg, "/...")
	dir = filepath.Clean(dir)
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && !deep:
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, alternative := range strings.Split(pattern, "|") {
		alternative, _, _ = strings.Cut(alternative, "/")
		is, err := regexp.Compile(alternative)
		if err != nil {
			continue // a pattern with its bars inside brackets is about one test's parts
		}
		if !slices.ContainsFunc(names, is.MatchString) {
			return fmt.Errorf("%s has no test %s", pkg, alternative)
		}
	}
	return nil
}

// documents returns the paths of all documents whose links are checked.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

var (
	fencedBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan    = regexp.MustCompile("`[^`\n]*`")
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// linksOf returns the targets of the links of a Markdown text that lead into the tree. Code is left out, but a link's text may be code.
func linksOf(text string) (targets []string) {
	text = fencedBlock.ReplaceAllString(text, "")
	text = codeSpan.ReplaceAllString(text, "code")
	for _, match := range link.FindAllStringSubmatch(text, -1) {
		if target := match[1]; !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") {
			targets = append(targets, target)
		}
	}
	return targets
}

// checkLink returns what is wrong with a link of a document.
func checkLink(document, target string) error {
	path, fragment, _ := strings.Cut(target, "#")
	file := document
	if path != "" {
		file = filepath.Join(filepath.Dir(document), path)
	}
	if !filepath.IsLocal(file) {
		return fmt.Errorf("%s is outside of the tree", file)
	}
	if _, err := os.Stat(file); err != nil {
		return err
	}
	switch {
	case fragment == "":
		return nil
	case strings.HasSuffix(file, ".go"):
		return checkDeclared(file, fragment)
	case strings.HasSuffix(file, ".md"):
		return checkHeading(file, fragment)
	}
	return fmt.Errorf("%s has a fragment: only Go files and documents are searched for one", file)
}

// checkDeclared returns an error unless a Go file declares a function, type, variable or constant, or, as "Type.Method", a method of a type or interface.
func checkDeclared(file, name string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, declaration := range parsed.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if functionName(d) == name {
				return nil
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if specDeclares(spec, name) {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("%s does not declare %s", file, name)
}

// functionName returns "Name" for a function and "Type.Name" for a method.
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	receiver := d.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	switch generic := receiver.(type) {
	case *ast.IndexExpr:
		receiver = generic.X
	case *ast.IndexListExpr:
		receiver = generic.X
	}
	if named, ok := receiver.(*ast.Ident); ok {
		return named.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

// specDeclares reports whether a declaration of types, variables or constants declares a name, or an interface type that has the method.
func specDeclares(spec ast.Spec, name string) bool {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, declared := range s.Names {
			if declared.Name == name {
				return true
			}
		}
	case *ast.TypeSpec:
		if s.Name.Name == name {
			return true
		}
		methods, isInterface := s.Type.(*ast.InterfaceType)
		typeName, method, isMethod := strings.Cut(name, ".")
		if !isInterface || !isMethod || s.Name.Name != typeName {
			return false
		}
		for _, m := range methods.Methods.List {
			if len(m.Names) == 1 && m.Names[0].Name == method {
				return true
			}
		}
	}
	return false
}

var notInSlug = regexp.MustCompile(`[^a-z0-9 _-]`)

// checkHeading returns an error unless a document has a heading with the anchor that GitHub makes of it.
func checkHeading(file, anchor string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(fencedBlock.ReplaceAllString(string(text), "")) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.TrimSpace(strings.TrimLeft(line, "#"))
		if strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-") == anchor {
			return nil
		}
	}
	return fmt.Errorf("%s has no heading for #%s", file, anchor)
}
