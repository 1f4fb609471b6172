package webhook

import (
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver/admission/webhook/client"
)

// file is a WebhookAdmissionConfiguration.
type file struct {
	metav1.TypeMeta    `json:",inline"`
	KubeConfigFile     string `json:"kubeConfigFile"`
	StaticManifestsDir string `json:"staticManifestsDir,omitempty"`
}

const (
	configKind    = "WebhookAdmissionConfiguration"
	configVersion = "apiserver.config.k8s.io/v1"
)

// ParseConfig decodes a WebhookAdmissionConfiguration, and returns the credentials that it names for webhook servers. An empty text has none.
func ParseConfig(text []byte) (*client.Credentials, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, fmt.Errorf("failed to decode the %s: %w", configKind, err)
	}
	switch {
	case f.Kind != configKind || f.APIVersion != configVersion:
		return nil, fmt.Errorf("expected a %s of %s, got kind %q of apiVersion %q", configKind, configVersion, f.Kind, f.APIVersion)
	case f.StaticManifestsDir != "":
		return nil, field.Forbidden(field.NewPath("staticManifestsDir"), "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled")
	case f.KubeConfigFile == "":
		return nil, nil
	case !filepath.IsAbs(f.KubeConfigFile):
		return nil, field.Invalid(field.NewPath("kubeConfigFile"), f.KubeConfigFile, "must be an absolute file path")
	}
	credentials, err := client.ReadCredentials(f.KubeConfigFile)
	if err != nil {
		return nil, fmt.Errorf("failed to read kubeConfigFile: %w", err)
	}
	return credentials, nil
}
