package configfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/apiserver/admission/configfile"
)

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"

func read(path string) (map[string][]byte, error) {
	return configfile.Read(path, func(name string) bool { return name == "One" || name == "Two" }, func(name string) bool { return name == "One" })
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want, err  string
	}{
		{"no plugins", head, "", ""},
		{"in the file", head + "plugins: [{name: One, configuration: {a: 1}}]", `{"a":1}`, ""},
		{"in another file", head + "plugins: [{name: One, path: other.yaml}]", "b: 2\n", ""},
		{"the older version", "apiVersion: apiserver.k8s.io/v1alpha1\nkind: AdmissionConfiguration\nplugins: [{name: One, configuration: {a: 1}}]", `{"a":1}`, ""},
		{"nothing of it", head + "plugins: [{name: One}]", "", ""},
		{"an unknown plugin", head + "plugins: [{name: Three}]", "", `plugins[0]: plugin "Three" is unknown`},
		{"one that takes nothing", head + "plugins: [{name: Two}]", "", `plugins[0]: plugin "Two" takes no configuration in skiff`},
		{"one twice", head + "plugins: [{name: One}, {name: One}]", "", `plugins[1]: plugin "One" is configured twice`},
		{"an unknown field", head + "plugin: []", "", `unknown field "plugin"`},
		{"an unknown field of a plugin", head + "plugins: [{name: One, config: {}}]", "", `unknown field "config"`},
		{"another kind", "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration", "", `expected an AdmissionConfiguration of apiserver.config.k8s.io/v1, got kind "EncryptionConfiguration"`},
		{"another version", "apiVersion: apiserver.config.k8s.io/v2\nkind: AdmissionConfiguration", "", `apiVersion "apiserver.config.k8s.io/v2"`},
		{"a file that is not there", head + "plugins: [{name: One, path: none.yaml}]", "", `plugins[0]: plugin "One": open `},
		{"no YAML", "{", "", "failed to decode the admission configuration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "admission.yaml")
			for name, text := range map[string]string{"admission.yaml": c.text, "other.yaml": "b: 2\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			configurations, err := read(path)
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), path)):
				t.Fatalf("the error is %v, want one of %s that says %s", err, path, c.err)
			case string(configurations["One"]) != c.want:
				t.Errorf("read %q, want %q", configurations["One"], c.want)
			}
		})
	}
	if configurations, err := read(""); err != nil || len(configurations) > 0 {
		t.Errorf("without a file: %v, %v", configurations, err)
	}
	if _, err := read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}
