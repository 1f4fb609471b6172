package eventratelimit

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Config holds the limits.
type Config struct{ limits []limitConfig }

type limitType string

const (
	server            limitType = "Server"
	byNamespace       limitType = "Namespace"
	byUser            limitType = "User"
	bySourceAndObject limitType = "SourceAndObject"
)

var limitTypes = []limitType{byNamespace, server, bySourceAndObject, byUser}

// limitConfig is one limit of a Configuration.
type limitConfig struct {
	Type      limitType `json:"type"`
	QPS       int32     `json:"qps"`
	Burst     int32     `json:"burst"`
	CacheSize int32     `json:"cacheSize,omitempty"`
}

// defaultCacheSize is how many buckets a limit has if its configuration does not say.
const defaultCacheSize = 4096

func (l *limitConfig) cacheSize() int { return int(cmp.Or(l.CacheSize, defaultCacheSize)) }

// file is a Configuration of eventratelimit.admission.k8s.io.
type file struct {
	metav1.TypeMeta `json:",inline"`
	Limits          []limitConfig `json:"limits"`
}

const (
	configKind    = "Configuration"
	configVersion = "eventratelimit.admission.k8s.io/v1alpha1"
	// maxLimits bounds the limits: every event is counted by each of them.
	maxLimits = 64
)

// ParseConfig decodes a Configuration. An empty text has no limits, as upstream's default.
func ParseConfig(text []byte) (Config, error) {
	f := file{TypeMeta: metav1.TypeMeta{APIVersion: configVersion, Kind: configKind}}
	if len(text) > 0 {
		f.TypeMeta = metav1.TypeMeta{}
		if err := yaml.UnmarshalStrict(text, &f); err != nil {
			return Config{}, fmt.Errorf("failed to decode the %s of %s: %w", configKind, configVersion, err)
		}
	}
	if f.Kind != configKind || f.APIVersion != configVersion {
		return Config{}, fmt.Errorf("expected a %s of %s, got kind %q of apiVersion %q", configKind, configVersion, f.Kind, f.APIVersion)
	}
	path := field.NewPath("limits")
	var errs field.ErrorList
	switch {
	case len(f.Limits) == 0:
		errs = append(errs, field.Invalid(path, f.Limits, "must not be empty"))
	case len(f.Limits) > maxLimits:
		errs = append(errs, field.TooMany(path, len(f.Limits), maxLimits))
	}
	for i, l := range f.Limits {
		at := path.Index(i)
		if !slices.Contains(limitTypes, l.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type, limitTypes))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.Type != server && l.CacheSize < 0 {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return Config{f.Limits}, errs.ToAggregate()
}
