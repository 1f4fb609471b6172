// Package configfile reads the file of --admission-control-config-file: an AdmissionConfiguration, which has a configuration for each plugin that takes one.
//
// What differs from upstream: a plugin that does not exist, that takes no configuration, or that is named twice is an error, where upstream ignores it.
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

// plugin is the configuration of one plugin: in the file itself, or in another one.
type plugin struct {
	Name          string          `json:"name"`
	Path          string          `json:"path"`
	Configuration json.RawMessage `json:"configuration"`
}

const kind = "AdmissionConfiguration"

// versions differ in nothing but their name.
var versions = []string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}

// Read returns the configurations by plugin. known says whether there is such a plugin, takes whether it has anything to configure.
// Without a path there are none.
func Read(path string, known, takes func(plugin string) bool) (map[string][]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the admission configuration: %w", err)
	}
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, fmt.Errorf("decoding the admission configuration %s: %w", path, err)
	}
	if f.Kind != kind || !slices.Contains(versions, f.APIVersion) {
		return nil, fmt.Errorf("admission configuration %s: expected an %s of %s, got kind %q of apiVersion %q", path, kind, versions[0], f.Kind, f.APIVersion)
	}
	configurations := map[string][]byte{}
	for i, p := range f.Plugins {
		where := fmt.Sprintf("admission configuration %s: plugins[%d]", path, i)
		switch {
		case !known(p.Name):
			return nil, fmt.Errorf("%s: plugin %q is unknown", where, p.Name)
		case !takes(p.Name):
			return nil, fmt.Errorf("%s: plugin %q takes no configuration in skiff", where, p.Name)
		case configurations[p.Name] != nil:
			return nil, fmt.Errorf("%s: plugin %q is there already", where, p.Name)
		}
		if configurations[p.Name], err = p.text(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("%s: plugin %q: %w", where, p.Name, err)
		}
	}
	return configurations, nil
}

// text is the configuration itself, which counts more than a path. Paths are relative to the file that names them.
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
