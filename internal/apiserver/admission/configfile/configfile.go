package configfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

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

const kind = "AdmissionConfiguration"

// versions are the supported apiVersions, which differ only in name.
var versions = []string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}

// Read returns the configurations of the file by plugin name, none if the path is empty. exists reports whether a plugin of that name exists,
// configurable whether it takes a configuration.
func Read(path string, exists, configurable func(plugin string) bool) (map[string][]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read the admission configuration: %w", err)
	}
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, fmt.Errorf("failed to decode the admission configuration %s: %w", path, err)
	}
	if f.Kind != kind || !slices.Contains(versions, f.APIVersion) {
		return nil, fmt.Errorf("admission configuration %s: expected an %s of %s, got kind %q of apiVersion %q", path, kind, versions[0], f.Kind, f.APIVersion)
	}
	configurations := map[string][]byte{}
	for i, p := range f.Plugins {
		where := fmt.Sprintf("admission configuration %s: plugins[%d]", path, i)
		switch {
		case !exists(p.Name):
			return nil, fmt.Errorf("%s: plugin %q is unknown", where, p.Name)
		case !configurable(p.Name):
			return nil, fmt.Errorf("%s: plugin %q takes no configuration in skiff", where, p.Name)
		case configurations[p.Name] != nil:
			return nil, fmt.Errorf("%s: plugin %q is configured twice", where, p.Name)
		}
		if configurations[p.Name], err = p.text(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("%s: plugin %q: %w", where, p.Name, err)
		}
	}
	return configurations, nil
}

// text returns the inline configuration, or else the content of the file that the path names, relative to dir.
func (p *plugin) text(dir string) ([]byte, error) {
	switch {
	case len(p.Configuration) > 0 && string(p.Configuration) != "null":
		return p.Configuration, nil
	case p.Path == "":
		return []byte{}, nil
	case !filepath.IsAbs(p.Path):
		p.Path = filepath.Join(dir, p.Path)
	}
	return os.ReadFile(p.Path)
}
