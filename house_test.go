package skiff

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
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
		"apiserver": {"catalog", "store", "cache", "journey", "client", "quota", "upgrade"}, "quota": {"catalog"}, "http2": {}, "upgrade": {},
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
