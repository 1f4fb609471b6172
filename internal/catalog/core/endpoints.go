package core

import (
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
)

var Endpoints = catalog.Resource[corev1.Endpoints]{
	Version: "v1", Kind: "Endpoints", Plural: "endpoints", Short: []string{"ep"}, Namespaced: true,
	StorageName:         "services/endpoints",
	Deprecated:          "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
	Name:                validation.NameIsDNSSubdomain,
	CreateOnUpdate:      true,
	UnconditionalUpdate: true,
	Default:             defaultEndpoints,
	Validate:            validateEndpoints,
	ValidateUpdate:      validateEndpointsUpdate,
	Warnings:            endpointsWarnings,
	Columns: []catalog.Column[corev1.Endpoints]{
		catalog.NameColumn[corev1.Endpoints](),
		{Name: "Endpoints", Description: corev1.Endpoints{}.SwaggerDoc()["subsets"],
			Cell: func(e *corev1.Endpoints, _ time.Time) any { return formatEndpoints(e) }},
		catalog.AgeColumn[corev1.Endpoints](),
	},
	Complete: true,
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		ports := e.Subsets[i].Ports
		for j := range ports {
			if ports[j].Protocol == "" {
				ports[j].Protocol = corev1.ProtocolTCP
			}
		}
	}
}

func validateEndpoints(e *corev1.Endpoints) field.ErrorList {
	p := check.At(nil)
	for i := range e.Subsets {
		validateSubset(p.Item("subsets", i), &e.Subsets[i])
	}
	return p.Errors()
}

// validateEndpointsUpdate accepts endpoints that do not change: they may have been accepted under older rules.
func validateEndpointsUpdate(new, old *corev1.Endpoints) field.ErrorList {
	errs := validateEndpoints(new)
	if len(errs) > 0 && apiequality.Semantic.DeepEqual(new.Subsets, old.Subsets) {
		return nil
	}
	return errs
}

func validateSubset(p *check.Part, s *corev1.EndpointSubset) {
	if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
		p.Required("", "must specify `addresses` or `notReadyAddresses`")
	}
	for i := range s.Addresses {
		validateEndpointAddress(p, "addresses", i, &s.Addresses[i])
	}
	for i := range s.NotReadyAddresses {
		validateEndpointAddress(p, "notReadyAddresses", i, &s.NotReadyAddresses[i])
	}
	for i := range s.Ports {
		validateEndpointPort(p.Item("ports", i), &s.Ports[i], len(s.Ports) > 1)
	}
}

func validateEndpointAddress(parent *check.Part, list string, i int, a *corev1.EndpointAddress) {
	ordinary := address.IsOrdinary(a.IP)
	if ordinary && a.Hostname == "" && a.NodeName == nil {
		return
	}
	p := parent.Item(list, i)
	if !ordinary {
		p.Add(address.IP(a.IP, nil, p.Path("ip"))...)
	}
	if a.Hostname != "" {
		p.Format("hostname", a.Hostname, utilvalidation.IsDNS1123Label)
	}
	if a.NodeName != nil {
		p.Format("nodeName", *a.NodeName, utilvalidation.IsDNS1123Subdomain)
	}
	if !ordinary {
		p.Add(address.Endpoint(a.IP, p.Path("ip"))...)
	}
}

func validateEndpointPort(p *check.Part, port *corev1.EndpointPort, requireName bool) {
	if port.Name != "" {
		p.Format("name", port.Name, utilvalidation.IsDNS1123Label)
	} else if requireName {
		p.Required("name", "")
	}
	validatePortNumber(p, "port", port.Port)
	validateProtocol(p, port.Protocol)
	if port.AppProtocol != nil {
		p.Format("appProtocol", *port.AppProtocol, utilvalidation.IsQualifiedName)
	}
}

func validatePortNumber(p *check.Part, name string, port int32) {
	for _, msg := range utilvalidation.IsValidPortNum(int(port)) {
		p.Invalid(name, port, msg)
	}
}

func validateProtocol(p *check.Part, protocol corev1.Protocol) {
	check.OneOf(p, "protocol", protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// endpointsWarnings returns no warnings for objects of the endpoints controller, which writes most of them and only well-formed addresses.
func endpointsWarnings(new, _ *corev1.Endpoints) []string {
	if new.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
		return nil
	}
	var warnings []string
	for i, s := range new.Subsets {
		for _, list := range []struct {
			name      string
			addresses []corev1.EndpointAddress
		}{{"addresses", s.Addresses}, {"notReadyAddresses", s.NotReadyAddresses}} {
			for j, a := range list.addresses {
				if !address.IsCanonical(a.IP) {
					path := field.NewPath("subsets").Index(i).Child(list.name).Index(j).Child("ip")
					warnings = append(warnings, address.Warnings(a.IP, path)...)
				}
			}
		}
	}
	return warnings
}

// formatEndpoints returns the first few addresses and the number of the rest.
func formatEndpoints(e *corev1.Endpoints) string {
	if len(e.Subsets) == 0 {
		return "<none>"
	}
	const most = 3
	var shown []string
	count := 0
	show := func(a *corev1.EndpointAddress, port *corev1.EndpointPort) {
		count++
		switch {
		case len(shown) == most:
		case port == nil:
			shown = append(shown, a.IP)
		default:
			shown = append(shown, net.JoinHostPort(a.IP, strconv.Itoa(int(port.Port))))
		}
	}
	for i := range e.Subsets {
		s := &e.Subsets[i]
		for j := range s.Addresses {
			if len(s.Ports) == 0 { // a headless service needs none
				show(&s.Addresses[j], nil)
			}
		}
		for k := range s.Ports {
			for j := range s.Addresses {
				show(&s.Addresses[j], &s.Ports[k])
			}
		}
	}
	text := strings.Join(shown, ",")
	if count > most {
		text += " + " + strconv.Itoa(count-most) + " more..."
	}
	return text
}
