package podtolerationrestriction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	catalogpod "skiff/internal/catalog/pod"
)

// Config holds the tolerations of namespaces that do not have the annotations.
type Config struct{ defaults, whitelist []corev1.Toleration }

// file is a Configuration of podtolerationrestriction.admission.k8s.io.
type file struct {
	metav1.TypeMeta `json:",inline"`
	Default         []corev1.Toleration `json:"default,omitempty"`
	Whitelist       []corev1.Toleration `json:"whitelist,omitempty"`
}

const (
	configKind    = "Configuration"
	configVersion = "podtolerationrestriction.admission.k8s.io/v1alpha1"
)

// ParseConfig decodes a Configuration. An empty text has no tolerations.
func ParseConfig(text []byte) (Config, error) {
	if len(text) == 0 {
		return Config{}, nil
	}
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return Config{}, fmt.Errorf("failed to decode the %s of %s: %w", configKind, configVersion, err)
	}
	if f.Kind != configKind || f.APIVersion != configVersion {
		return Config{}, fmt.Errorf("expected a %s of %s, got kind %q of apiVersion %q", configKind, configVersion, f.Kind, f.APIVersion)
	}
	path := field.NewPath("podtolerationrestriction")
	errs := append(catalogpod.ValidateTolerations(f.Default, path.Child("default")), catalogpod.ValidateTolerations(f.Whitelist, path.Child("whitelist"))...)
	if len(errs) > 0 {
		return Config{}, fmt.Errorf("invalid config: %v", errs)
	}
	return Config{f.Default, f.Whitelist}, nil
}
