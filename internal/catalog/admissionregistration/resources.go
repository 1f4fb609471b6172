package admissionregistration

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// Resources returns the resources of the group, but for InitializerConfiguration, which Kubernetes of today does not have.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{
		MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
		ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
	}
}

const group = "admissionregistration.k8s.io"

var categories = []string{"api-extensions"}

// staticSuffix is the suffix of the names of webhooks and policies that are configured in files.
const staticSuffix = ".static.k8s.io"

// notStatic adds an error for a name with the reserved suffix.
func notStatic(p *check.Part, name string) {
	if strings.HasSuffix(name, staticSuffix) {
		p.Add(field.Invalid(field.NewPath("metadata", "name"), name, `names ending with "`+staticSuffix+
			`" are reserved for static manifest-based configurations and cannot be managed via the API`))
	}
}

// fill sets a field that is nil.
func fill[V any](p **V, value V) {
	if *p == nil {
		*p = &value
	}
}
