package podnodeselector

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Config holds node selectors by namespace.
type Config struct {
	fallback labels.Set            // of namespaces without the annotation
	allowed  map[string]labels.Set // by namespace: what pods there may select
}

// file is the plugin's configuration: it has neither kind nor apiVersion.
type file struct {
	Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
}

// clusterDefault is the key of the selector of namespaces that have none themselves. All others are names of namespaces.
const clusterDefault = "clusterDefaultNodeSelector"

// ParseConfig decodes the plugin's configuration. An empty text has no selectors.
func ParseConfig(text []byte) (Config, error) {
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return Config{}, fmt.Errorf("failed to decode the podNodeSelectorPluginConfig: %w", err)
	}
	c, path := Config{allowed: map[string]labels.Set{}}, field.NewPath("podNodeSelectorPluginConfig")
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(f.Selectors)) {
		set, err := labels.ConvertSelectorToLabelsMap(f.Selectors[key])
		if err != nil {
			errs = append(errs, field.Invalid(path.Child(key), f.Selectors[key], err.Error()))
		}
		if key == clusterDefault {
			c.fallback = set
			continue
		}
		for _, problem := range validation.ValidateNamespaceName(key, false) {
			errs = append(errs, field.Invalid(path, key, "must be "+clusterDefault+" or the name of a namespace: "+problem))
		}
		c.allowed[key] = set
	}
	return c, errs.ToAggregate()
}
