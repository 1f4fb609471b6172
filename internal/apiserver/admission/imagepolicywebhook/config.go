package imagepolicywebhook

import (
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Config is the plugin's configuration.
type Config struct {
	allowTTL, denyTTL time.Duration // 0 keeps no answer
	retryBackoff      time.Duration
	defaultAllow      bool
	webhook           *webhook
}

// file is the configuration as it is written: it has neither kind nor apiVersion.
type file struct {
	ImagePolicy struct {
		KubeConfigFile string `json:"kubeConfigFile"`
		AllowTTL       int64  `json:"allowTTL"`     // in seconds
		DenyTTL        int64  `json:"denyTTL"`      // in seconds
		RetryBackoff   int64  `json:"retryBackoff"` // in milliseconds
		DefaultAllow   bool   `json:"defaultAllow"`
	} `json:"imagePolicy"`
}

const (
	defaultRetryBackoff = 500 * time.Millisecond
	defaultAllowTTL     = 5 * time.Minute
	defaultDenyTTL      = 30 * time.Second

	maxRetryBackoff = 5 * time.Minute
	maxTTL          = 30 * time.Minute
)

// ParseConfig decodes the plugin's configuration, and reads the kubeconfig file that it names: relative to dir. A nil dial connects directly.
func ParseConfig(text []byte, dir string, dial Dial) (Config, error) {
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return Config{}, fmt.Errorf("failed to decode the imagePolicy: %w", err)
	}
	path, given := field.NewPath("imagePolicy"), &f.ImagePolicy
	var errs field.ErrorList
	duration := func(name string, value int64, unit, least, most, fallback time.Duration) time.Duration {
		switch {
		case value == -1: // switched off
			return 0
		case value == 0:
			return fallback
		case value < int64(least/unit) || value > int64(most/unit):
			errs = append(errs, field.Invalid(path.Child(name), value, fmt.Sprintf("valid value is between %v and %v", least, most)))
		}
		return time.Duration(value) * unit
	}
	c := Config{
		retryBackoff: duration("retryBackoff", given.RetryBackoff, time.Millisecond, time.Millisecond, maxRetryBackoff, defaultRetryBackoff),
		allowTTL:     duration("allowTTL", given.AllowTTL, time.Second, time.Second, maxTTL, defaultAllowTTL),
		denyTTL:      duration("denyTTL", given.DenyTTL, time.Second, time.Second, maxTTL, defaultDenyTTL),
		defaultAllow: given.DefaultAllow,
	}
	kubeconfig := given.KubeConfigFile
	if kubeconfig == "" {
		errs = append(errs, field.Required(path.Child("kubeConfigFile"), "it says where the webhook is"))
		return Config{}, errs.ToAggregate()
	}
	if !filepath.IsAbs(kubeconfig) {
		kubeconfig = filepath.Join(dir, kubeconfig)
	}
	var err error
	if c.webhook, err = newWebhook(kubeconfig, dial); err != nil {
		errs = append(errs, field.Invalid(path.Child("kubeConfigFile"), given.KubeConfigFile, err.Error()))
	}
	return c, errs.ToAggregate()
}
