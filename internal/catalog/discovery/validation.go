package discovery

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
)

// The limits keep a slice, which is sent to every node, small.
const (
	maxEndpoints = 1000
	maxAddresses = 100
	maxPorts     = 20000
	maxTopology  = 16
	maxHints     = 8
)

func validateEndpointSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	p := check.At(nil)
	validatePorts(p, s.Ports)
	validateEndpoints(p, s)
	validateAddressType(p, s.AddressType)
	validateAddressCounts(p, s.Endpoints)
	return p.Errors()
}

// validateEndpointSliceUpdate accepts endpoints that do not change: they may have been accepted under older rules.
func validateEndpointSliceUpdate(new, old *discoveryv1.EndpointSlice) field.ErrorList {
	p := check.At(nil)
	if new.AddressType != old.AddressType {
		validateAddressType(p, new.AddressType)
	}
	validatePorts(p, new.Ports)
	found := check.At(nil)
	validateEndpoints(found, new)
	if new.AddressType != old.AddressType {
		p.Invalid("addressType", nil, validation.FieldImmutableErrorMsg)
	}
	validateAddressCounts(found, new.Endpoints)
	if len(found.Errors()) > 0 && !apiequality.Semantic.DeepEqual(new.Endpoints, old.Endpoints) {
		p.Add(found.Errors()...)
	}
	return p.Errors()
}

func validateAddressType(p *check.Part, t discoveryv1.AddressType) {
	if t == "" {
		p.Required("addressType", "")
		return
	}
	check.OneOf(p, "addressType", t, discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
}

func validateAddressCounts(p *check.Part, endpoints []discoveryv1.Endpoint) {
	for i := range endpoints {
		switch n := len(endpoints[i].Addresses); {
		case n == 0:
			p.Item("endpoints", i).Required("addresses", "")
		case n > maxAddresses:
			p.Add(field.TooMany(p.Item("endpoints", i).Path("addresses"), n, maxAddresses))
		}
	}
}

func validatePorts(p *check.Part, ports []discoveryv1.EndpointPort) {
	if len(ports) > maxPorts {
		p.Add(field.TooMany(p.Path("ports"), len(ports), maxPorts))
		return
	}
	for i := range ports {
		port, item := &ports[i], p.Item("ports", i)
		if *port.Name != "" {
			item.Format("name", *port.Name, utilvalidation.IsDNS1123Label)
		}
		if slices.ContainsFunc(ports[:i], func(o discoveryv1.EndpointPort) bool { return *o.Name == *port.Name }) {
			item.Add(field.Duplicate(item.Path("name"), port.Name))
		}
		check.OneOf(item, "protocol", *port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
		if port.AppProtocol != nil {
			item.Format("appProtocol", *port.AppProtocol, utilvalidation.IsQualifiedName)
		}
	}
}

func validateEndpoints(p *check.Part, s *discoveryv1.EndpointSlice) {
	if len(s.Endpoints) > maxEndpoints {
		p.Add(field.TooMany(p.Path("endpoints"), len(s.Endpoints), maxEndpoints))
		return
	}
	for i := range s.Endpoints {
		validateEndpoint(p.Item("endpoints", i), &s.Endpoints[i], s.AddressType)
	}
}

func validateEndpoint(p *check.Part, e *discoveryv1.Endpoint, kind discoveryv1.AddressType) {
	for i, a := range e.Addresses {
		validateAddress(p, i, a, kind)
	}
	if e.NodeName != nil {
		p.Format("nodeName", *e.NodeName, utilvalidation.IsDNS1123Subdomain)
	}
	if len(e.DeprecatedTopology) > 0 {
		if len(e.DeprecatedTopology) > maxTopology {
			p.Add(field.TooMany(p.Path("deprecatedTopology"), len(e.DeprecatedTopology), maxTopology))
		}
		p.Add(metav1validation.ValidateLabels(e.DeprecatedTopology, p.Path("deprecatedTopology"))...)
	}
	if e.Hostname != nil {
		p.Format("hostname", *e.Hostname, utilvalidation.IsDNS1123Label)
	}
	if e.Hints != nil {
		validateHints(p.Child("hints"), e.Hints)
	}
}

// validateAddress validates an address of a known type; the type itself is validated elsewhere. IPv6 addresses
// must be in canonical form.
func validateAddress(p *check.Part, i int, a string, kind discoveryv1.AddressType) {
	var errs field.ErrorList
	var other bool
	switch kind {
	case discoveryv1.AddressTypeFQDN:
		p.Add(utilvalidation.IsFullyQualifiedDomainName(p.Path("addresses").Index(i), a)...)
		return
	case discoveryv1.AddressTypeIPv4:
		other = !netutils.IsIPv4String(a)
		if !other && address.IsOrdinary(a) {
			return
		}
		errs = address.IP(a, nil, p.Path("addresses").Index(i))
	case discoveryv1.AddressTypeIPv6:
		other = !netutils.IsIPv6String(a)
		errs = utilvalidation.IsValidIP(p.Path("addresses").Index(i), a)
	default:
		return
	}
	if len(errs) == 0 {
		if other {
			p.Invalid("addresses", a, "must be an "+string(kind)+" address")
		}
		errs = address.Endpoint(a, p.Path("addresses").Index(i))
	}
	p.Add(errs...)
}

func validateHints(p *check.Part, h *discoveryv1.EndpointHints) {
	zones := make([]string, len(h.ForZones))
	for i := range h.ForZones {
		zones[i] = h.ForZones[i].Name
	}
	nodes := make([]string, len(h.ForNodes))
	for i := range h.ForNodes {
		nodes[i] = h.ForNodes[i].Name
	}
	if validateHintNames(p, "forZones", zones, utilvalidation.IsValidLabelValue) {
		validateHintNames(p, "forNodes", nodes, utilvalidation.IsDNS1123Subdomain)
	}
}

func validateHintNames(p *check.Part, list string, names []string, rule func(string) []string) bool {
	if len(names) > maxHints {
		p.Add(field.TooMany(p.Path(list), len(names), maxHints))
		return false
	}
	for i, name := range names {
		item := p.Item(list, i)
		if slices.Contains(names[:i], name) {
			item.Add(field.Duplicate(item.Path("name"), name))
		}
		item.Format("name", name, rule)
	}
	return true
}
