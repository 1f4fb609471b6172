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

// segment requires something that can stand in a URL. What is missing is told by the part given as required, which may be nil if
// nothing need be there.
func segment(p, required *check.Part, name, value string) {
	if value != "" {
		p.Format(name, value, content.IsPathSegmentName)
	} else if required != nil {
		required.Required(name, "")
	}
}
