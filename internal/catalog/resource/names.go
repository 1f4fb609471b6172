package resource

import (
	"context"
	"strings"
	"unicode/utf8"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/volume"
)

// A declared rule has other error messages than a handwritten one that allows the same; hence there are two functions for some rules.

// checkDriver applies the handwritten rule for the name of a driver.
func checkDriver(p *check.Part, name, driver string) {
	p.Add(volume.ValidateDriverName(driver, p.Path(name))...)
}

// declareDriver applies the declared rule for the name of a driver.
func declareDriver(p *check.Part, name, driver string) {
	if driver == "" {
		p.Required(name, "")
		return
	}
	p.Format(name, driver, content.IsDNS1123SubdomainCaseless)
	if utf8.RuneCountInString(driver) > resourcev1.DriverNameMaxLength {
		p.Add(field.TooLongCharacters(p.Path(name), "", resourcev1.DriverNameMaxLength))
	}
}

// checkPool applies the handwritten rule for the name of a pool: DNS subdomains separated by slashes.
func checkPool(p *check.Part, name, pool string) {
	if pool == "" {
		p.Required(name, "")
		return
	}
	if len(pool) > resourcev1.PoolNameMaxLength {
		p.Add(field.TooLong(p.Path(name), "", resourcev1.PoolNameMaxLength))
	}
	for segment := range strings.SplitSeq(pool, "/") {
		p.Format(name, segment, utilvalidation.IsDNS1123Subdomain)
	}
}

func declarePool(p *check.Part, name, pool string) {
	if pool == "" {
		p.Required(name, "")
		return
	}
	declare(p, name, &pool, validate.ResourcePoolName)
}

// declare applies a declared rule of apimachinery to a value.
func declare[S ~string](p *check.Part, name string, value *S, rule func(context.Context, operation.Operation, *field.Path, *S, *S) field.ErrorList) {
	p.Add(rule(context.Background(), operation.Operation{}, p.Path(name), value, nil)...)
}

// checkQualified checks the name of an attribute or a capacity: a C identifier, perhaps with a domain before it.
func checkQualified(p *check.Part, name, value string) {
	parts := strings.Split(value, "/")
	switch len(parts) {
	case 1:
		checkIdentifier(p, name, value)
	case 2:
		if parts[0] == "" {
			p.Invalid(name, "", "the domain must not be empty")
		} else {
			checkDriver(p, name, parts[0])
		}
		if parts[1] == "" {
			p.Invalid(name, "", "the name must not be empty")
		} else {
			checkIdentifier(p, name, parts[1])
		}
	}
}

func checkIdentifier(p *check.Part, name, id string) {
	if len(id) > resourcev1.DeviceMaxIDLength {
		p.Add(field.TooLong(p.Path(name), "", resourcev1.DeviceMaxIDLength))
	}
	p.Format(name, id, content.IsCIdentifier)
}

// shortened returns a key as errors show it.
func shortened(key string) string {
	const longest = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength
	if len(key) <= longest {
		return key
	}
	const rest = longest - len("...")
	return key[:(rest+1)/2] + "..." + key[len(key)-rest/2:]
}

func isSubdomainName(name string) []string { return validation.NameIsDNSSubdomain(name, false) }
