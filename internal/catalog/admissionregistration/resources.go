package admissionregistration

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// Resources are the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{
		MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
		ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
	}
}

const group = "admissionregistration.k8s.io"

var categories = []string{"api-extensions"}

// staticSuffix ends the names of what is configured in files.
const staticSuffix = ".static.k8s.io"

// notStatic complains of a name that is reserved.
func notStatic(p *check.Part, name string) {
	if strings.HasSuffix(name, staticSuffix) {
		p.Add(field.Invalid(field.NewPath("metadata", "name"), name, `names ending with "`+staticSuffix+
			`" are reserved for static manifest-based configurations and cannot be managed via the API`))
	}
}

// fill sets what was left out.
func fill[V any](p **V, value V) {
	if *p == nil {
		*p = &value
	}
}
