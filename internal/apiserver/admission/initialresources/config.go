package initialresources

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Options are the flags --ir-percentile and --ir-namespace-only, which the plugin's configuration overrides.
type Options struct {
	Percentile    int
	NamespaceOnly bool
}

// Defaults are the default values of the flags.
var Defaults = Options{Percentile: 90}

// Config says how the plugin estimates.
type Config struct {
	requests, limits int // percentiles; limits is 0 if none are set
	headroom         int // what limits have beside what was used, in percent of it
	windows          []time.Duration
	namespaceOnly    bool
}

// file is a Configuration of initialresources.admission.k8s.io.
type file struct {
	metav1.TypeMeta `json:",inline"`
	Requests        struct {
		Percentile *int `json:"percentile"`
	} `json:"requests"`
	Limits struct {
		Percentile      *int `json:"percentile"`
		HeadroomPercent *int `json:"headroomPercent"`
	} `json:"limits"`
	Window        *metav1.Duration `json:"window"`
	NamespaceOnly *bool            `json:"namespaceOnly"`
}

const (
	configKind    = "Configuration"
	configVersion = "initialresources.admission.k8s.io/v1alpha1"

	defaultLimitPercentile = 100
	defaultHeadroom        = 100
	maxHeadroom            = 10_000

	day       = 24 * time.Hour
	minWindow = day
	maxWindow = 30 * day // so long the history is kept
)

// defaultWindows are how far back usage counts: if there is too little in the first, in the second.
var defaultWindows = []time.Duration{7 * day, 30 * day}

// ParseConfig decodes a Configuration; what it leaves out is as the flags say. An empty text leaves out everything.
func ParseConfig(text []byte, flags Options) (Config, error) {
	var f file
	if len(text) > 0 {
		if err := yaml.UnmarshalStrict(text, &f); err != nil {
			return Config{}, fmt.Errorf("failed to decode the %s of %s: %w", configKind, configVersion, err)
		}
		if f.Kind != configKind || f.APIVersion != configVersion {
			return Config{}, fmt.Errorf("expected a %s of %s, got kind %q of apiVersion %q", configKind, configVersion, f.Kind, f.APIVersion)
		}
	}
	var errs field.ErrorList
	number := func(path *field.Path, given *int, fallback, least, most int) int {
		value := fallback
		if given != nil {
			value = *given
		}
		if value < least || value > most {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("must be between %d and %d", least, most)))
		}
		return value
	}
	c := Config{
		requests:      number(field.NewPath("requests", "percentile"), f.Requests.Percentile, flags.Percentile, 1, 100),
		limits:        number(field.NewPath("limits", "percentile"), f.Limits.Percentile, defaultLimitPercentile, 0, 100),
		headroom:      number(field.NewPath("limits", "headroomPercent"), f.Limits.HeadroomPercent, defaultHeadroom, 0, maxHeadroom),
		windows:       defaultWindows,
		namespaceOnly: flags.NamespaceOnly,
	}
	if f.NamespaceOnly != nil {
		c.namespaceOnly = *f.NamespaceOnly
	}
	if w := f.Window; w != nil {
		if w.Duration < minWindow || w.Duration > maxWindow {
			errs = append(errs, field.Invalid(field.NewPath("window"), w.Duration.String(), fmt.Sprintf("must be between %v and %v", minWindow, maxWindow)))
		}
		c.windows = []time.Duration{w.Duration}
	}
	return c, errs.ToAggregate()
}
