package managedfields

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
	"skiff/test/seed"
)

// TestCreateEqualsLibrary compares the managed fields of new objects with the library's, for every kind: fully populated objects (the test
// data of k8s.io/api) of which random parts are removed or changed.
func TestCreateEqualsLibrary(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 1))
	kinds := 0
	for _, info := range all.Resources() {
		data, err := os.ReadFile(testdata(t, info.GVK))
		if info.Virtual || err != nil {
			continue
		}
		kinds++
		t.Run(info.GVK.Kind, func(t *testing.T) {
			manager, err := New(info, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				body := vary(random, data)
				want, got := decode(t, info, body), decode(t, info, body)
				manager.libraryUpdate(info.New().(catalog.Object), want, "tester")
				manager.Create(got, "tester")
				if w, g := show(want), show(got); w != g {
					t.Fatalf("managed fields differ\nlibrary:   %s\nfast path: %s\nobject: %s", w, g, body)
				}
			}
		})
	}
	if kinds < 40 {
		t.Fatalf("only %d kinds have test data", kinds)
	}
}

func show(obj catalog.Object) string {
	var out strings.Builder
	for _, e := range obj.GetManagedFields() {
		e.Time = nil
		b, err := json.Marshal(e)
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&out, "%s\n", b)
	}
	return out.String()
}

func decode(t *testing.T, info *catalog.Info, body []byte) catalog.Object {
	t.Helper()
	obj := info.New().(catalog.Object)
	if err := json.Unmarshal(body, obj); err != nil {
		t.Fatal(err)
	}
	obj.SetManagedFields(nil)
	obj.SetUID("")
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj
}

// vary removes random parts of an object, and changes numbers, so that keys of lists differ too.
func vary(random *rand.Rand, data []byte) []byte {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		panic(err)
	}
	keep := 0.5 + random.Float64()/2
	b, err := json.Marshal(prune(random, v, keep))
	if err != nil {
		panic(err)
	}
	return b
}

func prune(random *rand.Rand, v any, keep float64) any {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			if k == "apiVersion" || k == "kind" {
				continue
			}
			if random.Float64() > keep {
				delete(v, k)
			} else {
				v[k] = prune(random, v[k], keep)
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = prune(random, v[i], keep)
		}
		return v
	case bool:
		return random.Float64() < 0.5
	}
	return v
}

var apiDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	return strings.TrimSpace(string(out)), err
})

// testdata returns the path of k8s.io/api's test object of a kind, in which every field is set.
func testdata(t *testing.T, gvk schema.GroupVersionKind) string {
	t.Helper()
	dir, err := apiDir()
	if err != nil {
		t.Fatal(err)
	}
	group := gvk.Group
	if group == "" {
		group = "core"
	}
	return filepath.Join(dir, "testdata", "HEAD", group+"."+gvk.Version+"."+gvk.Kind+".json")
}
