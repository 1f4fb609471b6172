package differential

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"skiff/internal/catalog/catalogtest"
)

// The values that differ from server to server: addresses and ports of services, times, and the administrator's name.
var (
	allocated = regexp.MustCompile(`10\.43\.\d+\.\d+|\b3[0-2]\d{3}\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	admin     = regexp.MustCompile(`(kubernetes-)?admin\b`)
	adminUID  = regexp.MustCompile(`\n +uid: <admin>`)
)

// TestStories runs the catalog's stories, which its own tests replay without a server, against a whole skiff: at least one valid object of
// every kind, and invalid ones. The answers must be those recorded from upstream.
func TestStories(t *testing.T) {
	stories, err := filepath.Glob("../../internal/catalog/*/testdata/stories/*.yaml")
	if err != nil || len(stories) < 20 {
		t.Fatalf("%d stories: %v", len(stories), err)
	}
	dir := t.TempDir()
	var copies []string
	for _, file := range stories {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		group := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(file))))
		copied := filepath.Join(dir, group+"-"+filepath.Base(file))
		if err := os.WriteFile(copied, data, 0o600); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, copied)
	}
	cmd := exec.Command("go", append([]string{"run", "skiff/test/record", "--kubeconfig", startSkiff(t)}, copies...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, file := range stories {
		t.Run(filepath.Base(copies[i]), func(t *testing.T) {
			want, got := answers(t, file), answers(t, copies[i])
			if len(want) != len(got) {
				t.Fatalf("%d answers of %d", len(got), len(want))
			}
			for n := range want {
				if diff := catalogtest.Diff(shown(t, want[n]), shown(t, got[n])); diff != "" {
					t.Errorf("%s (- upstream, + skiff):\n%s", want[n].Step, diff)
				}
			}
		})
	}
}

func answers(t *testing.T, story string) []catalogtest.Answer {
	t.Helper()
	data, err := os.ReadFile(catalogtest.Golden(story))
	if err != nil {
		t.Fatal(err)
	}
	list, err := catalogtest.ParseGolden(data)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func shown(t *testing.T, a catalogtest.Answer) string {
	t.Helper()
	a.Warnings = slices.DeleteFunc(a.Warnings, func(w string) bool { return unenforced.MatchString("Warning: " + w) })
	slices.Sort(a.Warnings) // upstream returns warnings about a map in any order
	if conditions, found, _ := unstructured.NestedSlice(a.Object, "status", "conditions"); found && a.Object["kind"] == "CustomResourceDefinition" {
		// Several of upstream's loops write the conditions of a definition, in any order.
		slices.SortFunc(conditions, func(a, b any) int {
			return strings.Compare(fmt.Sprint(a.(map[string]any)["type"]), fmt.Sprint(b.(map[string]any)["type"]))
		})
		if err := unstructured.SetNestedSlice(a.Object, conditions, "status", "conditions"); err != nil {
			t.Fatal(err)
		}
	}
	text, err := catalogtest.Render([]catalogtest.Answer{a})
	if err != nil {
		t.Fatal(err)
	}
	masked := allocated.ReplaceAllString(string(text), "<allocated>")
	return adminUID.ReplaceAllString(admin.ReplaceAllString(masked, "<admin>"), "")
}
