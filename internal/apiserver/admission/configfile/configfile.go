package configfile

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Configuration is the configuration of a plugin.
type Configuration struct {
	Text []byte
	Dir  string // the directory of the file that has the text, which paths in it are relative to
	At   string // where the text is, for errors: the path of the field, or the file that it names
}

type file struct {
	metav1.TypeMeta `json:",inline"`
	Plugins         []plugin `json:"plugins"`
}

// plugin is the configuration of one plugin: inline, or the path of another file.
type plugin struct {
	Name          string          `json:"name"`
	Path          string          `json:"path"`
	Configuration json.RawMessage `json:"configuration"`
}

const (
	kind = "AdmissionConfiguration"
	// maxFile bounds the size of a file.
	maxFile = 4 << 20
)

// versions are the supported apiVersions, which differ only in name.
var versions = []string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}

// legacy are the plugins that may have their configuration in place of the AdmissionConfiguration, as all had it once, by the fields that it has.
var legacy = map[string]string{"imagePolicy": "ImagePolicyWebhook", "podNodeSelectorPluginConfig": "PodNodeSelector"}

// Read returns the configurations of the file by plugin name, none if the path is empty. exists reports whether a plugin of that name exists,
// configurable whether it takes a configuration.
func Read(path string, exists, configurable func(plugin string) bool) (map[string]Configuration, error) {
	if path == "" {
		return nil, nil
	}
	text, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read the admission configuration: %w", err)
	}
	if configurations := readLegacy(text, path); configurations != nil {
		return configurations, nil
	}
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, fmt.Errorf("failed to decode the admission configuration %s: %w", path, err)
	}
	if f.Kind != kind || !slices.Contains(versions, f.APIVersion) {
		return nil, fmt.Errorf("admission configuration %s: expected an %s of %s, got kind %q of apiVersion %q", path, kind, versions[0], f.Kind, f.APIVersion)
	}
	configurations := map[string]Configuration{}
	for i, p := range f.Plugins {
		where := fmt.Sprintf("admission configuration %s: plugins[%d]", path, i)
		_, twice := configurations[p.Name]
		switch {
		case !exists(p.Name):
			return nil, fmt.Errorf("%s: plugin %q is unknown", where, p.Name)
		case !configurable(p.Name):
			return nil, fmt.Errorf("%s: plugin %q takes no configuration in skiff", where, p.Name)
		case twice:
			return nil, fmt.Errorf("%s: plugin %q is configured twice", where, p.Name)
		}
		if configurations[p.Name], err = p.configuration(path, i); err != nil {
			return nil, fmt.Errorf("%s: plugin %q: %w", where, p.Name, err)
		}
	}
	return configurations, nil
}

// configuration returns the inline configuration, or else the content of the file that the path names, relative to the file that has it.
func (p *plugin) configuration(file string, index int) (Configuration, error) {
	c := Configuration{Text: []byte{}, Dir: filepath.Dir(file), At: fmt.Sprintf("plugins[%d].configuration", index)}
	if len(p.Configuration) > 0 && string(p.Configuration) != "null" {
		c.Text = p.Configuration
		return c, nil
	}
	if p.Path == "" {
		return c, nil
	}
	if !filepath.IsAbs(p.Path) {
		p.Path = filepath.Join(c.Dir, p.Path)
	}
	c.Dir, c.At = filepath.Dir(p.Path), fmt.Sprintf("plugins[%d].path %s", index, p.Path)
	var err error
	c.Text, err = read(p.Path)
	return c, err
}

// readLegacy returns the configurations of a file that has no AdmissionConfiguration but those themselves; nil if it is no such file. A field that is none of
// them is in all of them, so that each plugin says that it is unknown.
func readLegacy(text []byte, path string) map[string]Configuration {
	fields := map[string]json.RawMessage{}
	if yaml.Unmarshal(text, &fields) != nil || fields["kind"] != nil || fields["apiVersion"] != nil {
		return nil
	}
	configurations := map[string]Configuration{}
	for name, plugin := range legacy {
		if fields[name] == nil {
			continue
		}
		own := map[string]json.RawMessage{}
		for field, value := range fields {
			if legacy[field] == "" || field == name {
				own[field] = value
			}
		}
		if text, err := json.Marshal(own); err == nil {
			configurations[plugin] = Configuration{Text: text, Dir: filepath.Dir(path), At: name}
		}
	}
	if len(configurations) == 0 {
		return nil
	}
	return configurations
}

// read returns the content of a file.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return text, err
}
