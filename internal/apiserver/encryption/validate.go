package encryption

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
)

var (
	aesKeySizes       = []int{16, 24, 32}
	secretboxKeySizes = []int{32}
)

// anything is the resource "*.*", which is every resource of every group.
var anything = schema.GroupResource{Group: "*", Resource: "*"}

// redacted stands for a key in errors.
const redacted = "REDACTED"

// validate returns what is wrong with a configuration, in upstream's words.
func validate(c *apiserver.EncryptionConfiguration, reload bool) (errs field.ErrorList) {
	root := field.NewPath("resources")
	if len(c.Resources) == 0 {
		return field.ErrorList{missing(root, root.String())}
	}
	v := validator{reload: reload, plugins: map[string]bool{}}
	for i, entry := range c.Resources {
		resources, providers := root.Index(i).Child("resources"), root.Index(i).Child("providers")
		if len(entry.Resources) == 0 {
			errs = append(errs, missing(resources, resources.String()))
		}
		errs = append(errs, validateOverlap(entry.Resources, resources)...)
		for j, name := range entry.Resources {
			if problem := resourceProblem(name); problem != "" {
				errs = append(errs, field.Invalid(resources.Index(j), name, problem))
			}
		}
		if len(entry.Providers) == 0 {
			errs = append(errs, missing(providers, providers.String()))
		}
		for j, p := range entry.Providers {
			errs = append(errs, v.provider(p, providers.Index(j))...)
		}
	}
	return errs
}

func missing(path *field.Path, what string) *field.Error {
	return field.Required(path, fmt.Sprintf("at least one %s is required", what))
}

func mandatory(path *field.Path, name, of string) *field.Error {
	return field.Required(path.Child(name), fmt.Sprintf("%s is a mandatory field for a %s", name, of))
}

// validateOverlap refuses a list in which a resource occurs twice, or beside a wildcard that includes it.
func validateOverlap(names []string, path *field.Path) (errs field.ErrorList) {
	var duplicate, overlap bool
	for i, a := range names {
		for _, b := range names[i+1:] {
			a, b := schema.ParseGroupResource(a), schema.ParseGroupResource(b)
			switch {
			case a == b:
				duplicate = true
				overlap = overlap || a.Resource == "*"
			case a == anything, b == anything, a.Group == b.Group && (a.Resource == "*" || b.Resource == "*"):
				overlap = true
			}
		}
	}
	if duplicate {
		errs = append(errs, field.Invalid(path, names, "the same resource cannot be specified multiple times"))
	}
	if overlap {
		errs = append(errs, field.Invalid(path, names, "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"))
	}
	return errs
}

// resourceProblem returns why a resource cannot be encrypted by that name; empty if it can.
func resourceProblem(name string) string {
	gr := schema.ParseGroupResource(name)
	switch {
	case strings.ToLower(name) != name:
		return "resource name should not contain capital letters"
	case name == "*":
		return "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
	case name == "apiserveripinfo", name == "serviceipallocations", name == "servicenodeportallocations":
		return "resources which do not have REST API/s cannot be encrypted"
	case gr.Group == "events.k8s.io":
		return "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
	case gr.Group == "extensions":
		return "'extensions' group has been removed and cannot be used for encryption"
	case gr.Group == "*" && gr.Resource != "*":
		return "encrypting the same resource across groups is not supported"
	}
	return ""
}

// validator is the validation of one configuration.
type validator struct {
	reload  bool
	plugins map[string]bool // names of the KMS providers so far
}

func (v *validator) provider(p apiserver.ProviderConfiguration, path *field.Path) (errs field.ErrorList) {
	given := 0
	for _, one := range []bool{p.KMS != nil, p.AESGCM != nil, p.AESCBC != nil, p.Secretbox != nil, p.Identity != nil} {
		if one {
			given++
		}
	}
	switch {
	case given == 0:
		errs = append(errs, field.Invalid(path, p, "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"))
	case given > 1:
		errs = append(errs, field.Invalid(path, withoutKeys(p), "more than one provider specified in a single element, should split into different list elements"))
	}
	switch {
	case p.KMS != nil:
		errs = append(errs, v.kms(p.KMS, path.Child("kms"))...)
		v.plugins[p.KMS.Name] = true
	case p.AESGCM != nil:
		errs = append(errs, validateKeys(p.AESGCM.Keys, path.Child("aesgcm", "keys"), aesKeySizes)...)
	case p.AESCBC != nil:
		errs = append(errs, validateKeys(p.AESCBC.Keys, path.Child("aescbc", "keys"), aesKeySizes)...)
	case p.Secretbox != nil:
		errs = append(errs, validateKeys(p.Secretbox.Keys, path.Child("secretbox", "keys"), secretboxKeySizes)...)
	}
	return errs
}

// withoutKeys returns a provider whose keys can be shown.
func withoutKeys(p apiserver.ProviderConfiguration) apiserver.ProviderConfiguration {
	p = *p.DeepCopy()
	for _, keys := range keysOf(p) {
		for i := range keys {
			keys[i].Secret = redacted
		}
	}
	return p
}

func keysOf(p apiserver.ProviderConfiguration) (all [][]apiserver.Key) {
	if p.AESGCM != nil {
		all = append(all, p.AESGCM.Keys)
	}
	if p.AESCBC != nil {
		all = append(all, p.AESCBC.Keys)
	}
	if p.Secretbox != nil {
		all = append(all, p.Secretbox.Keys)
	}
	return all
}

func validateKeys(keys []apiserver.Key, path *field.Path, sizes []int) (errs field.ErrorList) {
	if len(keys) == 0 {
		return field.ErrorList{missing(path, "keys")}
	}
	for i, key := range keys {
		at := path.Index(i)
		if key.Name == "" {
			errs = append(errs, mandatory(at, "name", "key"))
		}
		if key.Secret == "" {
			errs = append(errs, mandatory(at, "secret", "key"))
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(key.Secret)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at.Child("secret"), redacted, "secrets must be base64 encoded"))
		case !slices.Contains(sizes, len(secret)):
			errs = append(errs, field.Invalid(at.Child("secret"), redacted, fmt.Sprintf("secret is not of the expected length, got %d, expected one of %v", len(secret), sizes)))
		}
	}
	return errs
}

func (v *validator) kms(c *apiserver.KMSConfiguration, path *field.Path) (errs field.ErrorList) {
	invalid := func(name string, value any, problem string) {
		errs = append(errs, field.Invalid(path.Child(name), value, problem))
	}
	name := path.Child("name")
	if c.Name == "" {
		errs = append(errs, field.Required(name, "name is a mandatory field for a provider"))
	}
	if c.APIVersion != "v1" && strings.Contains(c.Name, ":") {
		invalid("name", c.Name, fmt.Sprintf("invalid KMS provider name %s, must not contain ':'", c.Name))
	}
	if (v.reload || c.APIVersion != "v1") && v.plugins[c.Name] {
		invalid("name", c.Name, fmt.Sprintf("duplicate KMS provider name %s, names must be unique", c.Name))
	}
	if c.Timeout.Duration <= 0 {
		invalid("timeout", c.Timeout, "timeout should be a positive value")
	}
	if c.Endpoint == "" {
		invalid("endpoint", "", "endpoint is a mandatory field for a kms")
	} else if u, err := url.Parse(c.Endpoint); err != nil {
		invalid("endpoint", c.Endpoint, fmt.Sprintf("invalid endpoint for kms provider, error: %v", err))
	} else if u.Scheme != "unix" {
		invalid("endpoint", c.Endpoint, fmt.Sprintf("unsupported scheme %q for KMS provider, only unix is supported", u.Scheme))
	}
	switch {
	case c.APIVersion != "v1" && c.CacheSize != nil:
		invalid("cachesize", *c.CacheSize, "cachesize is not supported in v2")
	case c.APIVersion == "v1" && *c.CacheSize == 0:
		invalid("cachesize", *c.CacheSize, "cachesize should be a positive value, or negative to disable")
	}
	if c.APIVersion != "v1" && c.APIVersion != "v2" {
		invalid("apiVersion", c.APIVersion, "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported") // upstream's text has the field's name in place of the value
	}
	return errs
}
