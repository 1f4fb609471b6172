package discovery

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
	"skiff/internal/catalog/address"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration { return []catalog.Declaration{EndpointSlice} }

var EndpointSlice = catalog.Resource[discoveryv1.EndpointSlice]{
	Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice", Plural: "endpointslices", Namespaced: true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultEndpointSlice,
	PrepareCreate:       func(s *discoveryv1.EndpointSlice, _ catalog.Request) { dropTopology(s, nil) },
	PrepareUpdate:       dropTopology,
	Changed:             changed,
	Validate:            validateEndpointSlice,
	ValidateUpdate:      validateEndpointSliceUpdate,
	Warnings:            warnings,
	Columns: []catalog.Column[discoveryv1.EndpointSlice]{
		catalog.NameColumn[discoveryv1.EndpointSlice](),
		{Name: "AddressType", Description: doc["addressType"],
			Cell: func(s *discoveryv1.EndpointSlice, _ time.Time) any { return string(s.AddressType) }},
		{Name: "Ports", Description: doc["ports"], Cell: portsCell},
		{Name: "Endpoints", Description: doc["endpoints"], Cell: endpointsCell},
		catalog.AgeColumn[discoveryv1.EndpointSlice](),
	},
	Complete: true,
}

var doc = discoveryv1.EndpointSlice{}.SwaggerDoc()

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		port := &s.Ports[i]
		if port.Name == nil {
			port.Name = ptr.To("")
		}
		if port.Protocol == nil {
			port.Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

// changed reports whether anything but metadata differs. Labels count, because they name the service of the slice.
func changed(new, old *discoveryv1.EndpointSlice) bool {
	return new.AddressType != old.AddressType || !maps.Equal(new.Labels, old.Labels) ||
		!apiequality.Semantic.DeepEqual(new.Ports, old.Ports) || !apiequality.Semantic.DeepEqual(new.Endpoints, old.Endpoints)
}

// dropTopology clears deprecatedTopology, which only the former v1beta1 could write. A node name in it moves to
// nodeName, so that clients that write back what they read lose nothing.
func dropTopology(new, old *discoveryv1.EndpointSlice) {
	var nodes []string
	for _, e := range endpoints(old) {
		if name := e.DeprecatedTopology[corev1.LabelHostname]; name != "" {
			nodes = append(nodes, name)
		}
	}
	if nodes != nil && apiequality.Semantic.DeepEqual(new.Endpoints, old.Endpoints) {
		return
	}
	for i := range new.Endpoints {
		e := &new.Endpoints[i]
		name, ok := e.DeprecatedTopology[corev1.LabelHostname]
		if ok && e.NodeName == nil && slices.Contains(nodes, name) && len(utilvalidation.IsDNS1123Subdomain(name)) == 0 {
			e.NodeName = &name
		}
		e.DeprecatedTopology = nil
	}
}

func endpoints(s *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	if s == nil {
		return nil
	}
	return s.Endpoints
}

// warnings returns none for slices of this cluster's controllers, which write nearly all slices and only well-formed addresses.
func warnings(new, old *discoveryv1.EndpointSlice) []string {
	if new.AddressType == discoveryv1.AddressTypeFQDN {
		if old == nil {
			return []string{"spec.addressType: FQDN endpoints are deprecated"}
		}
		return nil
	}
	switch new.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return nil
	}
	var all []string
	for i, e := range new.Endpoints {
		for j, ip := range e.Addresses {
			if !address.IsCanonical(ip) {
				all = append(all, address.Warnings(ip, field.NewPath("endpoints").Index(i).Child("addresses").Index(j))...)
			}
		}
	}
	return all
}

func portsCell(s *discoveryv1.EndpointSlice, _ time.Time) any {
	var ports []string
	for _, p := range s.Ports {
		switch {
		case p.Port != nil:
			ports = append(ports, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			ports = append(ports, *p.Name)
		default:
			ports = append(ports, "*")
		}
	}
	return firstFew(ports)
}

func endpointsCell(s *discoveryv1.EndpointSlice, _ time.Time) any {
	var addresses []string
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return firstFew(addresses)
}

func firstFew(list []string) string {
	const most = 3
	text := strings.Join(list[:min(most, len(list))], ",")
	switch {
	case len(list) > most:
		return text + " + " + strconv.Itoa(len(list)-most) + " more..."
	case text == "":
		return "<unset>"
	}
	return text
}
