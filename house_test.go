package skiff

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The rules of the house: which rooms may know of which. See docs/decisions/0001-layout.md.

// components meet only at the API: none may import another, nor what lies behind the API.
var components = []string{"hollow", "controller", "scheduler", "kubelet", "network", "dashboard"}

// behindTheAPI is what only the API server and cluster may touch.
var behindTheAPI = []string{"apiserver", "store", "cache"}

func TestImportRules(t *testing.T) {
	for _, p := range packages(t) {
		room, inner := strings.CutPrefix(p.ImportPath, "skiff/internal/")
		room, _, _ = strings.Cut(room, "/")
		for _, imported := range p.Imports {
			if imported == "k8s.io/kubernetes" || strings.HasPrefix(imported, "k8s.io/kubernetes/") {
				t.Errorf("%s imports %s: upstream is what skiff is compared with, never a part of it", p.ImportPath, imported)
			}
			other, ok := strings.CutPrefix(imported, "skiff/internal/")
			if !ok || !inner {
				continue
			}
			other, _, _ = strings.Cut(other, "/")
			if why := forbidden(room, other); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, why)
			}
		}
		checkForeign(t, room, inner, p)
		for _, part := range strings.Split(p.ImportPath, "/") {
			switch part {
			case "util", "utils", "common", "helpers", "misc":
				t.Errorf("%s: a package named %s says nothing of what it serves", p.ImportPath, part)
			}
		}
	}
}

func forbidden(room, other string) string {
	if room == other {
		return ""
	}
	for _, c := range components {
		if room != c {
			continue
		}
		for _, b := range append(behindTheAPI, components...) {
			if other == b {
				return "components meet only at the API, through client"
			}
		}
	}
	allowed := map[string][]string{
		"catalog": {}, "store": {}, "cache": {"store"}, "journey": {}, "client": {"journey"}, "scheduling": {},
		"apiserver": {"catalog", "store", "cache", "journey", "client", "quota", "slis", "upgrade"}, "quota": {"catalog"}, "http2": {}, "slis": {}, "upgrade": {},
	}
	if rooms, limited := allowed[room]; limited {
		for _, r := range rooms {
			if r == other {
				return ""
			}
		}
		return room + " may import only " + strings.Join(append(rooms, "nothing else of skiff"), ", ")
	}
	return ""
}

// checkForeign keeps rooms free of what they must know nothing of.
func checkForeign(t *testing.T, room string, inner bool, p goPackage) {
	if !inner {
		return
	}
	for _, imported := range p.Imports {
		switch {
		case room == "store" && strings.HasPrefix(imported, "k8s.io/") && !strings.HasPrefix(imported, "k8s.io/utils/clock"):
			t.Errorf("%s imports %s: the store knows nothing of Kubernetes", p.ImportPath, imported)
		case room == "catalog" && !strings.Contains(p.ImportPath, "catalogtest") && (imported == "net/http" || strings.HasPrefix(imported, "go.etcd.io/")):
			t.Errorf("%s imports %s: the catalog knows nothing of HTTP or storage", p.ImportPath, imported)
		}
	}
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// docs/flakes.md has each test once: .ci/run gives no second try to one that is in it.
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

// .ci/flaky decides which packages of a failed run may be run once more.
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

// Seeds of random tests come from test/seed, so that each that is printed can be given back by flag.
func TestSeedsComeByFlag(t *testing.T) {
	out, err := exec.Command("git", "grep", "-nE", `Logf\("(-?seed|SEED)|NewPCG\((rand\.Uint64|uint64\(time)`, "--", "*_test.go").Output()
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		t.Fatal(err)
	}
	if lines := string(out); lines != "" && !strings.HasPrefix(lines, "house_test.go:") {
		t.Errorf("seeds that are not test/seed's:\n%s", lines)
	}
}
