package networking

import (
	"k8s.io/apimachinery/pkg/api/validate/content"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{IngressClass, Ingress, IPAddress, NetworkPolicy, ServiceCIDR}
}

const group = "networking.k8s.io"

// segment requires a valid path segment. The part required gets the error if the value is missing; it may be nil if the
// value is optional.
func segment(p, required *check.Part, name, value string) {
	if value != "" {
		p.Format(name, value, content.IsPathSegmentName)
	} else if required != nil {
		required.Required(name, "")
	}
}
