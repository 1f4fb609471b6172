package compare

import (
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	documents  = "../../documents"
	kubernetes = "k8s.io/kubernetes@v1.37.1"
)

var (
	live  = flag.String("live", "", "URL of a kube-apiserver to compare with")
	token = flag.String("token", "", "bearer token for it")
)

// TestSameAsUpstream compares with upstream's documents, which come from a server with every alpha and beta feature enabled, except
// for enums. skiff's are those of a server with default features. So upstream's differ: the version is "unversioned"; CBOR is
// offered; enums are left out, also of the descriptions.
func TestSameAsUpstream(t *testing.T) {
	folder := upstreamFolder(t)
	files, err := filepath.Glob(filepath.Join(folder, "v3", "*_openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	dotted, err := filepath.Glob(filepath.Join(folder, "v3", ".*_openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	compared := map[string]bool{}
	for _, file := range append(files, dotted...) {
		name := strings.TrimSuffix(filepath.Base(file), "_openapi.json")
		ours, err := read(ourFile(name))
		if os.IsNotExist(err) {
			if !notServed(strings.ReplaceAll(name, "__", "/")) {
				t.Errorf("we have no document %s", name)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		compared[filepath.Base(ourFile(name))] = true
		report(t, name, normalize(plain(t, file)), normalize(ours))
	}
	ourFiles, _ := filepath.Glob(filepath.Join(documents, "*.json.gz"))
	for _, file := range ourFiles {
		if name := filepath.Base(file); !compared[name] && name != "v2.json.gz" {
			t.Errorf("upstream has no document %s", name)
		}
	}
	if len(compared) < 40 {
		t.Errorf("only %d documents were compared", len(compared))
	}
}

func TestSameAsUpstreamV2(t *testing.T) {
	ours, err := read(filepath.Join(documents, "v2.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	theirs := normalize(plain(t, filepath.Join(upstreamFolder(t), "swagger.json"))).(map[string]any)
	mine := normalize(ours).(map[string]any)
	for _, section := range []string{"paths", "definitions", "parameters"} {
		for name := range theirs[section].(map[string]any) {
			if _, ok := mine[section].(map[string]any)[name]; !ok && notServed(name) {
				delete(theirs[section].(map[string]any), name)
			}
		}
	}
	report(t, "v2", theirs, mine)
}

func TestSameAsLive(t *testing.T) {
	if *live == "" {
		t.Skip("no server is given with -live")
	}
	var root struct{ Paths map[string]any }
	if err := json.Unmarshal(fetch(t, "/openapi/v3"), &root); err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(root.Paths)) {
		name := strings.ReplaceAll(path, "/", "__")
		ours, err := read(ourFile(name))
		if os.IsNotExist(err) {
			t.Logf("we have no document %s", path)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		report(t, path, decode(t, fetch(t, "/openapi/v3/"+path)), ours)
	}
	ours, err := read(filepath.Join(documents, "v2.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, "v2", decode(t, fetch(t, "/openapi/v2")), ours)
}

var beforeV1 = regexp.MustCompile(`v[0-9]+(alpha|beta)[0-9]+`)

// notServed reports whether skiff has no such document: versions that are disabled by default, groups that have no other, and
// the server's log files.
func notServed(name string) bool {
	for _, part := range []string{"internal.apiserver.k8s.io", "lifecycle.k8s.io"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return beforeV1.MatchString(name) || name == "logs" || strings.HasPrefix(name, "/logs/") || strings.HasPrefix(name, "logpath-")
}

func normalize(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range v {
			_, isList := member.([]any)
			description, isText := member.(string)
			switch {
			case strings.Contains(name, "application/cbor") || strings.Contains(name, "+cbor"):
			case name == "enum" && isList:
			case name == "version" && (member == "unversioned" || member == "1.37"):
			case name == "description" && isText:
				before, _, _ := strings.Cut(description, "Possible enum values:")
				out[name] = strings.TrimSpace(before)
			default:
				out[name] = normalize(member)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, element := range v {
			if s, ok := element.(string); !ok || !strings.Contains(s, "cbor") {
				out = append(out, normalize(element))
			}
		}
		return out
	default:
		return v
	}
}

func report(t *testing.T, name string, theirs, ours any) {
	t.Helper()
	differences := differ(nil, "", theirs, ours)
	for i, d := range differences {
		if i == 20 {
			t.Errorf("%s: and %d more", name, len(differences)-i)
			break
		}
		t.Errorf("%s: %s", name, d)
	}
}

func differ(list []string, path string, theirs, ours any) []string {
	a, isMap := theirs.(map[string]any)
	b, bothMaps := ours.(map[string]any)
	if isMap && bothMaps {
		names := map[string]bool{}
		for name := range a {
			names[name] = true
		}
		for name := range b {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			x, inTheirs := a[name]
			y, inOurs := b[name]
			switch here := path + "/" + name; {
			case !inTheirs:
				list = append(list, fmt.Sprintf("%s is only in ours: %.200s", here, text(y)))
			case !inOurs:
				list = append(list, fmt.Sprintf("%s is only in theirs: %.200s", here, text(x)))
			default:
				list = differ(list, here, x, y)
			}
		}
		return list
	}
	if !reflect.DeepEqual(theirs, ours) {
		list = append(list, fmt.Sprintf("%s: theirs %.200s, ours %.200s", path, text(theirs), text(ours)))
	}
	return list
}

func text(value any) string {
	b, _ := json.Marshal(value)
	return string(b)
}

func ourFile(name string) string {
	return filepath.Join(documents, strings.ReplaceAll(strings.TrimPrefix(name, "."), "__", "_")+".json.gz")
}

func read(file string) (any, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var value any
	err = json.NewDecoder(r).Decode(&value)
	return value, err
}

func plain(t *testing.T, file string) any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, data)
}

func decode(t *testing.T, data []byte) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func upstreamFolder(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", kubernetes).Output()
	if err != nil {
		t.Skipf("%s is not to be had: %v", kubernetes, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(module.Dir, "api", "openapi-spec")
}

func fetch(t *testing.T, path string) []byte {
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	request, err := http.NewRequest("GET", *live+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+*token)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		t.Fatalf("%s: %s, %v", path, response.Status, err)
	}
	return data
}
