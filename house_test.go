package skiff

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// layoutFile has the rules of the house: which rooms (folders of internal) may import which. The tests read them from there, so that the
// decision and its check are one list.
const layoutFile = "docs/decisions/0001-layout.md"

const module = "skiff/"

// TestImportRules holds every package to the row of its room.
func TestImportRules(t *testing.T) {
	rules, names := loadRoomRules(t), loadRule(t, "names that no package has")
	seen := map[string]bool{}
	for _, p := range packages(t) {
		room := roomOf(p.ImportPath)
		seen[room] = true
		if room != "" && rules.rooms[room] == nil {
			t.Errorf("%s: the room %s has no row in %s", p.ImportPath, room, layoutFile)
			continue
		}
		for _, imported := range p.Imports {
			if why := rules.forbids(p.ImportPath, imported); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, why)
			}
		}
		for _, part := range strings.Split(p.ImportPath, "/") {
			if slices.Contains(quoted(names), part) {
				t.Errorf("%s: a package named %s says nothing of what it serves", p.ImportPath, part)
			}
		}
	}
	for room := range rules.rooms {
		if !seen[room] {
			t.Errorf("%s has a row for %s, which is no room", layoutFile, room)
		}
	}
	for room := range rules.innerRooms {
		if !slices.ContainsFunc(packages(t), func(p goPackage) bool { return p.ImportPath == module+"internal/"+room }) {
			t.Errorf("%s has a row for %s, which is no package", layoutFile, room)
		}
	}
}

// TestForbidden shows that the rules of the table are understood: what each of these packages may import, and what not.
func TestForbidden(t *testing.T) {
	rules := loadRoomRules(t)
	for _, c := range []struct {
		importer, imported string
		forbidden          bool
	}{
		{"skiff/internal/controller/job", "skiff/internal/client", false},
		{"skiff/internal/controller/job", "skiff/internal/controller/owned", false},
		{"skiff/internal/controller/job", "skiff/internal/scheduler", true},
		{"skiff/internal/kubelet", "skiff/internal/network/podnet", true},
		{"skiff/internal/kubelet", "skiff/internal/apiserver/registry", true},
		{"skiff/internal/hollow", "skiff/internal/store", true},
		{"skiff/internal/scheduler", "skiff/internal/cache", true},
		{"skiff/internal/cli", "skiff/internal/cluster", false},
		{"skiff/internal/cli", "skiff/internal/controller/all", true},
		{"skiff/internal/cli", "skiff/internal/apiserver", true},
		{"skiff/internal/cache", "skiff/internal/store", false},
		{"skiff/internal/cache", "skiff/internal/catalog", true},
		{"skiff/internal/catalog/apps", "skiff/internal/store", true},
		{"skiff/internal/catalog/apps", "net/http", true},
		{"skiff/internal/catalog/apps", "net/http/httptest", false},
		{"skiff/internal/catalog/apps", "go.etcd.io/bbolt", true},
		{"skiff/internal/catalog/catalogtest", "net/http", false},
		{"skiff/internal/store/etcd", "k8s.io/api/core/v1", true},
		{"skiff/internal/store/etcd", "k8s.io/utils/clock", false},
		{"skiff/internal/store/etcd", "k8s.io/utils/clock/testing", false},
		{"skiff/internal/apiserver/registry", "skiff/internal/kubelet", true},
		{"skiff/internal/apiserver/response", "skiff/internal/apiserver/verbs", true},
		{"skiff/internal/apiserver/response", "skiff/internal/apiserver", true},
		{"skiff/internal/apiserver/response", "skiff/internal/apiserver/registry", false},
		{"skiff/internal/apiserver/front", "skiff/internal/apiserver/verbs", false},
		{"skiff/internal/apiserver", "skiff/internal/apiserver/front", false},
		{"skiff/internal/cluster", "skiff/internal/kubelet", false},
		{"skiff/internal/cluster", "k8s.io/kubernetes/pkg/apis/core", true},
		{"skiff/test/node", "k8s.io/kubernetes", true},
		{"skiff/test/node", "skiff/internal/kubelet", false},
	} {
		if why := rules.forbids(c.importer, c.imported); (why != "") != c.forbidden {
			t.Errorf("%s imports %s: forbidden is %v, want %v (%s)", c.importer, c.imported, why != "", c.forbidden, why)
		}
	}
}

// TestFileLength holds every Go file that is not generated to the length in the table.
func TestFileLength(t *testing.T) {
	most, err := strconv.Atoi(loadRule(t, "lines of a Go file that is not generated, at most"))
	if err != nil {
		t.Fatalf("%s: the length of files: %v", layoutFile, err)
	}
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for _, file := range strings.Fields(string(out)) {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(text, []byte("\n")); lines > most && !generated.Match(text) {
			t.Errorf("%s has %d lines: no file has more than %d, split it by what it is about", file, lines, most)
		}
	}
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// TestPackageDocs checks that every package, but for the root and for commands of tests, has a doc.go with a package comment that names what it must not import.
func TestPackageDocs(t *testing.T) {
	words := quoted(loadRule(t, "words that the doc.go of every package has, but for the root and for commands of tests"))[0]
	for _, p := range packages(t) {
		if p.ImportPath+"/" == module || p.Name == "main" && strings.HasPrefix(p.ImportPath, module+"test/") {
			continue
		}
		switch text, err := packageComment(filepath.Join(p.Dir, "doc.go")); {
		case errors.Is(err, os.ErrNotExist):
			t.Errorf("%s has no doc.go", p.ImportPath)
		case err != nil:
			t.Error(err)
		case !strings.Contains(text, words):
			t.Errorf("%s: doc.go has no sentence with %q", p.ImportPath, words)
		}
	}
}

// packageComment returns the package comment of a file in one line.
func packageComment(file string) (string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	return strings.Join(strings.Fields(commentText(parsed)), " "), nil
}

func commentText(file *ast.File) string {
	if file.Doc == nil {
		return ""
	}
	return file.Doc.Text()
}

// TestDrawing checks that every arrow in the drawing of rooms in docs/architecture.md is an import that exists.
func TestDrawing(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drawing, _ := strings.Cut(string(text), "```mermaid\nflowchart")
	drawing, _, _ = strings.Cut(drawing, "```")
	imports := map[[2]string]bool{}
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			imports[[2]string{roomOf(p.ImportPath), roomOf(imported)}] = true
		}
	}
	arrows := regexp.MustCompile(`(?m)^\s*(\w+) --> (\w+)$`).FindAllStringSubmatch(drawing, -1)
	if len(arrows) == 0 {
		t.Error("docs/architecture.md has no drawing of rooms")
	}
	for _, arrow := range arrows {
		if !imports[[2]string{arrow[1], arrow[2]}] {
			t.Errorf("docs/architecture.md draws that %s imports %s: it does not", arrow[1], arrow[2])
		}
	}
}

// roomRules are the rows of the table of rooms.
type roomRules struct {
	everyRoom  roomRule
	rooms      map[string]*roomRule
	innerRooms map[string][]string // packages below internal that a package below internal must not import
}

// roomRule is what the packages of one room may import.
type roomRule struct {
	kind         string   // "component", "behind the API", or empty
	limited      bool     // allowedRooms are all rooms that it may import
	allowedRooms []string // rooms
	noComponents bool     // it must not import components
	noBehindAPI  bool     // it must not import rooms behind the API
	foreign      []string // import paths of other modules that it must not import; "x/..." is x and everything below
	except       []string // import paths that it may import although they are in foreign
	exempt       []string // names of its packages that foreign does not hold for
}

// forbids returns why a package must not import another, or "".
func (r *roomRules) forbids(importer, imported string) string {
	if matchesAny(r.everyRoom.foreign, imported) {
		return "upstream is what skiff is compared with, never a part of it"
	}
	inner, outer := strings.TrimPrefix(importer, module+"internal/"), strings.TrimPrefix(imported, module+"internal/")
	if slices.Contains(r.innerRooms[inner], outer) {
		return inner + " must not import " + outer + ": a request never goes back"
	}
	room, other := roomOf(importer), roomOf(imported)
	rule := r.rooms[room]
	if rule == nil {
		return ""
	}
	if !slices.Contains(rule.exempt, importer[strings.LastIndex(importer, "/")+1:]) && matchesAny(rule.foreign, imported) && !matchesAny(rule.except, imported) {
		return room + " must not import " + strings.Join(rule.foreign, ", ")
	}
	if other == "" || other == room {
		return ""
	}
	kind := ""
	if r.rooms[other] != nil {
		kind = r.rooms[other].kind
	}
	switch {
	case rule.limited && !slices.Contains(rule.allowedRooms, other):
		return room + " may import only " + strings.Join(append(slices.Clone(rule.allowedRooms), "nothing else of skiff"), ", ")
	case rule.noComponents && kind == "component":
		return room + " must not import components: they meet only at the API, through client"
	case rule.noBehindAPI && kind == "behind the API":
		return room + " must not import what is behind the API: it is reached through client"
	}
	return ""
}

// roomOf returns the room of a package of skiff: the folder of internal that it is in, or "".
func roomOf(importPath string) string {
	room, inner := strings.CutPrefix(importPath, module+"internal/")
	if !inner {
		return ""
	}
	room, _, _ = strings.Cut(room, "/")
	return room
}

func matchesAny(patterns []string, importPath string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, tree := strings.CutSuffix(pattern, "/...")
		return importPath == prefix || tree && strings.HasPrefix(importPath, prefix+"/")
	})
}

// loadRoomRules reads the table of rooms.
func loadRoomRules(t *testing.T) *roomRules {
	t.Helper()
	rules := &roomRules{rooms: map[string]*roomRule{}, innerRooms: map[string][]string{}}
	for _, row := range tableRows(t, "inner room") {
		for _, room := range quoted(row[0]) {
			rules.innerRooms[room] = quoted(row[1])
		}
	}
	for _, row := range tableRows(t, "room") {
		if len(row) != 4 {
			t.Fatalf("%s: the row of %s has %d cells, want 4", layoutFile, row[0], len(row))
		}
		rule := parseRoomRule(t, row)
		if row[0] == "every room" {
			rules.everyRoom = rule
			continue
		}
		room := quoted(row[0])
		if len(room) != 1 || rules.rooms[room[0]] != nil {
			t.Fatalf("%s: %s: each row is about one room, and each room has one row", layoutFile, row[0])
		}
		rules.rooms[room[0]] = &rule
	}
	return rules
}

func parseRoomRule(t *testing.T, row []string) (rule roomRule) {
	t.Helper()
	rule.kind = row[1]
	switch row[2] {
	case "nothing":
		rule.limited = true
	case "", "anything", "anything else":
	default:
		rule.limited, rule.allowedRooms = true, quoted(row[2])
	}
	if row[3] == "components, what is behind the API" {
		rule.noComponents, rule.noBehindAPI = true, true
		return rule
	}
	forbidden, exempt, _ := strings.Cut(row[3], " but in ")
	forbidden, except, _ := strings.Cut(forbidden, " except ")
	rule.foreign, rule.except, rule.exempt = quoted(forbidden), quoted(except), quoted(exempt)
	if row[3] != "" && len(rule.foreign) == 0 {
		t.Fatalf("%s: %s must not import %q: not understood", layoutFile, row[0], row[3])
	}
	return rule
}

// loadRule returns the value of a row of the second table.
func loadRule(t *testing.T, name string) string {
	t.Helper()
	for _, row := range tableRows(t, "rule") {
		if row[0] == name {
			return row[1]
		}
	}
	t.Fatalf("%s has no rule %q", layoutFile, name)
	return ""
}

// tableRows returns the rows of the table of layoutFile whose first column has the given heading.
func tableRows(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(layoutFile)
	if err != nil {
		t.Fatal(err)
	}
	inTable := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == heading:
			inTable = true
		case inTable && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table that begins with the column %q", layoutFile, heading)
	}
	return rows
}

var codeWord = regexp.MustCompile("`([^`]+)`")

// quoted returns what is between backticks in a text.
func quoted(text string) (words []string) {
	for _, match := range codeWord.FindAllStringSubmatch(text, -1) {
		words = append(words, match[1])
	}
	return words
}

type goPackage struct {
	ImportPath, Name, Dir string
	Imports               []string
}

// packages returns every package of the module.
func packages(t *testing.T) []goPackage {
	t.Helper()
	list, err := listPackages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return list
}

// listPackages asks the go command once for all tests.
var listPackages = sync.OnceValues(func() (list []goPackage, err error) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Dir,Imports", "./...").Output()
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
})

// TestFlakesAreListedOnce checks that docs/flakes.md has each test once: .ci/run gives no second try to one that is in it.
func TestFlakesAreListedOnce(t *testing.T) {
	text, err := os.ReadFile("docs/flakes.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		name := strings.TrimSpace(cells[1])
		if strings.HasPrefix(name, "Test") && listed[name] {
			t.Errorf("docs/flakes.md has %s twice: it is a bug to be found, not a flake", name)
		}
		listed[name] = true
	}
}

// TestSecondTry checks which packages of a failed run .ci/flaky lets run once more.
func TestSecondTry(t *testing.T) {
	const failed = "ok  \tskiff/internal/a\t0.1s\n--- FAIL: TestStop (3.1s)\n    stop_test.go:1: -seed 42\n    --- FAIL: TestStop/now (0s)\nFAIL\nFAIL\tskiff/test/node\t60.1s\nok  \tskiff/internal/b\t0.1s\nFAIL\n"
	for _, c := range []struct{ name, log, flakes, again, refusal string }{
		{"a package with real containers", failed, "", "skiff/test/node\n", ""},
		{"a test that is listed", failed, "| TestStop/now | skiff/test/node |", "", "a test that fails twice is a bug"},
		{"a test of which another part is listed", failed, "| TestStop/later | skiff/test/node |", "skiff/test/node\n", ""},
		{"another package", strings.ReplaceAll(failed, "skiff/test/node", "skiff/internal/cache"), "", "", "it gets no second try"},
		{"one of two", failed + "--- FAIL: TestRing (0s)\nFAIL\nFAIL\tskiff/internal/cache\t1s\n", "", "", "it gets no second try"},
		{"a data race", "WARNING: DATA RACE\n" + failed, "", "", "no flake"},
		{"a panic", "panic: test timed out\nFAIL\tskiff/test/node\t600s\n", "", "", "outside of its tests"},
		{"a run that failed for no reason", "ok  \tskiff/internal/a\t0.1s\n", "", "", "no second try"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"log": c.log, "flakes": c.flakes, "allowed": "skiff/test/node\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var refusal strings.Builder
		cmd := exec.Command(".ci/flaky", filepath.Join(dir, "log"), filepath.Join(dir, "flakes"), filepath.Join(dir, "allowed"))
		cmd.Stderr = &refusal
		out, err := cmd.Output()
		if string(out) != c.again || (err != nil) != (c.refusal != "") || !strings.Contains(refusal.String(), c.refusal) {
			t.Errorf("%s: again %q, %v, %s", c.name, out, err, refusal.String())
		}
	}
}

// TestSeedsComeByFlag checks that random tests take their seed from test/seed, so that each seed that is printed can be given back by flag.
func TestSeedsComeByFlag(t *testing.T) {
	out, err := exec.Command("git", "grep", "-nE", `Logf\("(-?seed|SEED)|NewPCG\((rand\.Uint64|uint64\(time)`, "--", "*_test.go").Output()
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		t.Fatal(err)
	}
	if lines := string(out); lines != "" && !strings.HasPrefix(lines, "house_test.go:") {
		t.Errorf("seeds that are not test/seed's:\n%s", lines)
	}
}
