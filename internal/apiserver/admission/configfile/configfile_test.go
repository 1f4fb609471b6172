package configfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/apiserver/admission/configfile"
)

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"

func read(path string) (map[string]configfile.Configuration, error) {
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
			case string(configurations["One"].Text) != c.want:
				t.Errorf("read %q, want %q", configurations["One"].Text, c.want)
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

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "admission.yaml"), filepath.Join(dir, "more", "one.yaml")
	if err := os.Mkdir(filepath.Dir(other), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ plugin, dir, at string }{
		{"{name: One, configuration: {a: 1}}", dir, "plugins[0].configuration"},
		{"{name: One, path: more/one.yaml}", filepath.Dir(other), "plugins[0].path " + other},
		{"{name: One, path: " + other + "}", filepath.Dir(other), "plugins[0].path " + other},
	} {
		for name, text := range map[string]string{path: head + "plugins: [" + c.plugin + "]", other: "a: 1"} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		configurations, err := read(path)
		if one := configurations["One"]; err != nil || one.Dir != c.dir || one.At != c.at {
			t.Errorf("%s: read %+v, %v", c.plugin, one, err)
		}
	}
	if err := os.Truncate(other, 5<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := read(path); err == nil || !strings.Contains(err.Error(), "is larger than 4194304 bytes") {
		t.Errorf("a large file: %v", err)
	}
}

// Before there was the kind AdmissionConfiguration, the file had the configuration of the plugin itself.
func TestLegacyFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	all := func(string) bool { return true }
	for _, c := range []struct {
		text string
		want map[string]string
		err  string
	}{
		{"imagePolicy: {defaultAllow: true}", map[string]string{"ImagePolicyWebhook": `{"imagePolicy":{"defaultAllow":true}}`}, ""},
		{"podNodeSelectorPluginConfig: {a: b}", map[string]string{"PodNodeSelector": `{"podNodeSelectorPluginConfig":{"a":"b"}}`}, ""},
		{`{"imagePolicy": {}, "podNodeSelectorPluginConfig": {}}`, map[string]string{"ImagePolicyWebhook": `{"imagePolicy":{}}`, "PodNodeSelector": `{"podNodeSelectorPluginConfig":{}}`}, ""},
		{"imagePolicy: {}\nother: 1", map[string]string{"ImagePolicyWebhook": `{"imagePolicy":{},"other":1}`}, ""}, // which the plugin refuses
		{head + "imagePolicy: {}", nil, `unknown field "imagePolicy"`},
		{"other: {}", nil, `unknown field "other"`},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		configurations, err := configfile.Read(path, all, all)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: the error is %v, want one that has %s", c.text, err, c.err)
		}
		if len(configurations) != len(c.want) {
			t.Errorf("%s: read %v", c.text, configurations)
		}
		for name, text := range c.want {
			if got := configurations[name]; string(got.Text) != text || got.Dir != filepath.Dir(path) {
				t.Errorf("%s: of %s read %s, %s", c.text, name, got.Text, got.Dir)
			}
		}
	}
}
