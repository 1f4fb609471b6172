package signer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

const (
	maxDomain = validation.DNS1123SubdomainMaxLength
	maxName   = maxDomain + 1 + validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength
)

// Name checks the field signerName: a domain and, after a slash, a name within it.
func Name(p *check.Part, name string) {
	if name == "" {
		p.Required("signerName", "")
		return
	}
	domain, path, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(path, "/") {
		p.Invalid("signerName", name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	if len(domain) > maxDomain {
		p.Add(field.TooLong(p.Path("signerName"), "", maxDomain))
	}
	labels(p, domain, validation.IsDNS1123Label)
	if !strings.Contains(domain, ".") {
		p.Invalid("signerName", domain, "should be a domain with at least two segments separated by dots")
	}
	labels(p, path, validation.IsDNS1123Subdomain)
	if len(name) > maxName {
		p.Add(field.TooLong(p.Path("signerName"), "", maxName))
	}
}

// labels validates the labels of a domain name, up to the first invalid one.
func labels(p *check.Part, value string, rule func(string) []string) {
	for label := range strings.SplitSeq(value, ".") {
		if msgs := rule(label); len(msgs) > 0 {
			for _, msg := range msgs {
				p.Invalid("signerName", value, fmt.Sprintf("validating label %q: %s", label, msg))
			}
			return
		}
	}
}

// MinLife is the shortest lifetime of a pod's certificate, in seconds.
const MinLife = 60 * 60

// MaxLife returns the longest lifetime of a pod's certificate, in seconds. Kubernetes' own signers issue none for longer than a day.
func MaxLife(signer string) int32 {
	const day = 24 * 60 * 60
	domain, _, _ := strings.Cut(signer, "/")
	if domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		return day
	}
	return 91 * day
}

// BundleName returns what is wrong with the name of a signer's trust bundle, or of a bundle without a signer.
func BundleName(signer, name string, prefix bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return apivalidation.NameIsDNSSubdomain(name, prefix)
	}
	start := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, start)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, start)}
	}
	return apivalidation.NameIsDNSSubdomain(rest, prefix)
}

// UserAnnotations validates the annotations that a pod's author passes to its signer.
func UserAnnotations(p *check.Part, name string, annotations map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		p.Add(validation.IsDomainPrefixedKey(p.Path(name), strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		p.Add(field.TooLong(p.Path(name), "", apivalidation.TotalAnnotationSizeLimitB))
	}
}
