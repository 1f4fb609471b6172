package podsecurity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"
)

// Config holds the policy of namespaces without labels, and the exemptions.
type Config struct {
	defaults                              api.Policy
	usernames, namespaces, runtimeClasses map[string]bool
}

// file is a PodSecurityConfiguration.
type file struct {
	metav1.TypeMeta `json:",inline"`
	Defaults        struct {
		Enforce        string `json:"enforce,omitempty"`
		EnforceVersion string `json:"enforce-version,omitempty"`
		Audit          string `json:"audit,omitempty"`
		AuditVersion   string `json:"audit-version,omitempty"`
		Warn           string `json:"warn,omitempty"`
		WarnVersion    string `json:"warn-version,omitempty"`
	} `json:"defaults"`
	Exemptions struct {
		Usernames      []string `json:"usernames,omitempty"`
		Namespaces     []string `json:"namespaces,omitempty"`
		RuntimeClasses []string `json:"runtimeClasses,omitempty"`
	} `json:"exemptions"`
}

const (
	configKind  = "PodSecurityConfiguration"
	configGroup = "pod-security.admission.config.k8s.io"
)

// configVersions are the supported apiVersions, which differ only in name.
var configVersions = []string{configGroup + "/v1", configGroup + "/v1beta1", configGroup + "/v1alpha1"}

// ParseConfig decodes a PodSecurityConfiguration. An empty text is the default configuration: the level privileged and no exemptions.
func ParseConfig(text []byte) (Config, error) {
	f := file{TypeMeta: metav1.TypeMeta{APIVersion: configVersions[0], Kind: configKind}}
	if len(text) > 0 {
		f.TypeMeta = metav1.TypeMeta{}
		if err := yaml.UnmarshalStrict(text, &f); err != nil {
			return Config{}, fmt.Errorf("failed to decode the %s: %w", configKind, err)
		}
	}
	if f.Kind != configKind || !slices.Contains(configVersions, f.APIVersion) {
		return Config{}, fmt.Errorf("expected a %s of %s, got kind %q of apiVersion %q", configKind, configVersions[0], f.Kind, f.APIVersion)
	}
	var errs field.ErrorList
	level := func(name, value, version string) (result api.LevelVersion) {
		path := field.NewPath("defaults")
		var err error
		value, version = cmp.Or(value, string(api.LevelPrivileged)), cmp.Or(version, api.VersionLatest)
		if result.Level, err = api.ParseLevel(value); err != nil {
			errs = append(errs, field.Invalid(path.Child(name), value, err.Error()))
		}
		if result.Version, err = api.ParseVersion(version); err != nil {
			errs = append(errs, field.Invalid(path.Child(name+"-version"), version, err.Error()))
		}
		return result
	}
	set := func(name string, values []string, problems func(string) []string) map[string]bool {
		result := make(map[string]bool, len(values))
		for i, value := range values {
			path := field.NewPath("exemptions", name).Index(i)
			switch messages := problems(value); {
			case len(messages) > 0:
				errs = append(errs, field.Invalid(path, value, strings.Join(messages, ", ")))
			case result[value]:
				errs = append(errs, field.Duplicate(path, value))
			}
			result[value] = true
		}
		return result
	}
	d, e := &f.Defaults, &f.Exemptions
	c := Config{
		defaults:       api.Policy{Enforce: level("enforce", d.Enforce, d.EnforceVersion), Warn: level("warn", d.Warn, d.WarnVersion), Audit: level("audit", d.Audit, d.AuditVersion)},
		namespaces:     set("namespaces", e.Namespaces, func(s string) []string { return validation.ValidateNamespaceName(s, false) }),
		runtimeClasses: set("runtimeClasses", e.RuntimeClasses, func(s string) []string { return validation.NameIsDNSSubdomain(s, false) }),
		usernames: set("usernames", e.Usernames, func(s string) []string {
			if s == "" {
				return []string{"username must not be empty"}
			}
			return nil
		}),
	}
	return c, errs.ToAggregate()
}
