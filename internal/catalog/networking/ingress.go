package networking

import (
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
)

// classAnnotation is the annotation for the class of an ingress from before there was a field.
const classAnnotation = "kubernetes.io/ingress.class"

var Ingress = catalog.Resource[networkingv1.Ingress]{
	Group: group, Version: "v1", Kind: "Ingress", Plural: "ingresses", Short: []string{"ing"}, Namespaced: true,
	StorageName:         "ingress",
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Changed:             catalog.SpecChanged[networkingv1.Ingress],
	Validate:            validateIngress,
	ValidateUpdate: func(new, old *networkingv1.Ingress) field.ErrorList {
		return validateIngressSpec(&new.Spec, leniencyOf(&old.Spec)).Errors()
	},
	Warnings: func(new, old *networkingv1.Ingress) []string {
		if _, set := new.Annotations[classAnnotation]; old == nil && set && new.Spec.IngressClassName == nil {
			return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation)}
		}
		return nil
	},
	Status: &catalog.Edit[networkingv1.Ingress]{
		ValidateUpdate: validateIngressStatus,
		Warnings: func(new, _ *networkingv1.Ingress) []string {
			var warnings []string
			for i, point := range new.Status.LoadBalancer.Ingress {
				if point.IP != "" && !address.IsCanonical(point.IP) {
					warnings = append(warnings, address.Warnings(point.IP, field.NewPath("status", "loadBalancer", "ingress").Index(i))...)
				}
			}
			return warnings
		},
	},
	Columns: []catalog.Column[networkingv1.Ingress]{
		catalog.NameColumn[networkingv1.Ingress](),
		{Name: "Class", Description: "The name of the IngressClass resource that should be used for additional configuration",
			Cell: func(i *networkingv1.Ingress, _ time.Time) any {
				if i.Spec.IngressClassName == nil {
					return "<none>"
				}
				return *i.Spec.IngressClassName
			}},
		{Name: "Hosts", Description: "Hosts that incoming requests are matched against before the ingress rule",
			Cell: func(i *networkingv1.Ingress, _ time.Time) any { return hosts(i.Spec.Rules) }},
		{Name: "Address", Description: "Address is a list containing ingress points for the load-balancer",
			Cell: func(i *networkingv1.Ingress, _ time.Time) any { return points(i.Status.LoadBalancer.Ingress) }},
		{Name: "Ports", Description: "Ports of TLS configurations that open", Cell: func(i *networkingv1.Ingress, _ time.Time) any {
			if len(i.Spec.TLS) > 0 {
				return "80, 443"
			}
			return "80"
		}},
		catalog.AgeColumn[networkingv1.Ingress](),
	},
	Complete: true,
}

// leniency lists what an update may keep although it is refused in a new ingress, because it was accepted under older rules.
type leniency struct{ anySecretName, anyWildcardRule bool }

func leniencyOf(s *networkingv1.IngressSpec) leniency {
	var l leniency
	for _, tls := range s.TLS {
		l.anySecretName = l.anySecretName || tls.SecretName != "" && len(utilvalidation.IsDNS1123Subdomain(tls.SecretName)) > 0
	}
	for i := range s.Rules {
		if strings.Contains(s.Rules[i].Host, "*") {
			p := check.At(nil)
			validatePaths(p, s.Rules[i].HTTP)
			l.anyWildcardRule = l.anyWildcardRule || len(p.Errors()) > 0
		}
	}
	return l
}

func validateIngress(i *networkingv1.Ingress) field.ErrorList {
	spec := validateIngressSpec(&i.Spec, leniency{})
	class, set := i.Annotations[classAnnotation]
	if set && i.Spec.IngressClassName != nil && class != *i.Spec.IngressClassName {
		spec.Add(field.Invalid(field.NewPath("annotations", classAnnotation), class, "must match `ingressClassName` when both are specified"))
	}
	return spec.Errors()
}

func validateIngressSpec(s *networkingv1.IngressSpec, l leniency) *check.Part {
	spec := check.At(field.NewPath("spec"))
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		spec.Invalid("", s.Rules, "either `defaultBackend` or `rules` must be specified")
	}
	if s.DefaultBackend != nil {
		validateBackend(spec.Child("defaultBackend"), s.DefaultBackend)
	}
	for i := range s.Rules {
		validateIngressRule(spec.Item("rules", i), &s.Rules[i], l)
	}
	for i, tls := range s.TLS {
		p := spec.Item("tls", i)
		for j, host := range tls.Hosts {
			validateHost(p.Item("hosts", j), "", host)
		}
		if tls.SecretName != "" && !l.anySecretName {
			p.Format("secretName", tls.SecretName, utilvalidation.IsDNS1123Subdomain)
		}
	}
	if s.IngressClassName != nil {
		spec.Format("ingressClassName", *s.IngressClassName, utilvalidation.IsDNS1123Subdomain)
	}
	return spec
}

func validateHost(p *check.Part, name, host string) {
	if strings.Contains(host, "*") {
		p.Format(name, host, utilvalidation.IsWildcardDNS1123Subdomain)
	} else {
		p.Format(name, host, utilvalidation.IsDNS1123Subdomain)
	}
}

const notAnAddress = "must be a DNS name, not an IP address"

func validateIngressRule(p *check.Part, r *networkingv1.IngressRule, l leniency) {
	if r.Host != "" {
		if isIP(r.Host) {
			p.Invalid("host", r.Host, notAnAddress)
		}
		validateHost(p, "host", r.Host)
	}
	if !l.anyWildcardRule || !strings.Contains(r.Host, "*") {
		validatePaths(p, r.HTTP)
	}
}

func validatePaths(rule *check.Part, http *networkingv1.HTTPIngressRuleValue) {
	if http == nil {
		return
	}
	p := rule.Child("http")
	p.Present("paths", len(http.Paths) > 0, "")
	for i := range http.Paths {
		validatePath(p.Item("paths", i), &http.Paths[i])
	}
}

func validatePath(p *check.Part, path *networkingv1.HTTPIngressPath) {
	if path.PathType == nil {
		p.Required("pathType", "pathType must be specified")
		return
	}
	absolute := strings.HasPrefix(path.Path, "/")
	switch *path.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !absolute {
			p.Invalid("path", path.Path, "must be an absolute path")
		}
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(path.Path, part) {
				p.Invalid("path", path.Path, "must not contain '"+part+"'")
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(path.Path, end) {
				p.Invalid("path", path.Path, "cannot end with '"+end+"'")
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if path.Path != "" && !absolute {
			p.Invalid("path", path.Path, "must be an absolute path")
		}
	default:
		check.OneOf(p, "pathType", *path.PathType, networkingv1.PathTypeExact,
			networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	}
	validateBackend(p.Child("backend"), &path.Backend)
}

func validateBackend(p *check.Part, b *networkingv1.IngressBackend) {
	switch {
	case b.Resource != nil && b.Service != nil:
		p.Invalid("", "", "cannot set both resource and service backends")
	case b.Resource != nil:
		r := p.Child("resource")
		if b.Resource.APIGroup != nil {
			r.Format("apiGroup", *b.Resource.APIGroup, utilvalidation.IsDNS1123Subdomain)
		}
		segment(r, r, "kind", b.Resource.Kind)
		segment(r, r, "name", b.Resource.Name)
	case b.Service != nil:
		validateServiceBackend(p, b.Service)
	default:
		p.Invalid("", "", "resource or service backend is required")
	}
}

func validateServiceBackend(p *check.Part, b *networkingv1.IngressServiceBackend) {
	service := p.Child("service")
	if b.Name == "" {
		service.Required("name", "")
	} else {
		service.Format("name", b.Name, utilvalidation.IsDNS1123Label)
	}
	port := service.Child("port")
	switch {
	case b.Port.Name != "" && b.Port.Number != 0:
		p.Invalid("", "", "cannot set both port name & port number")
	case b.Port.Name != "":
		port.Format("name", b.Port.Name, utilvalidation.IsValidPortName)
	case b.Port.Number != 0:
		for _, msg := range utilvalidation.IsValidPortNum(int(b.Port.Number)) {
			port.Invalid("number", b.Port.Number, msg)
		}
	default:
		p.Required("", "port name or number is required")
	}
}

func validateIngressStatus(new, old *networkingv1.Ingress) field.ErrorList {
	p := check.At(field.NewPath("status", "loadBalancer"))
	var kept []string
	for _, point := range old.Status.LoadBalancer.Ingress {
		if point.IP != "" {
			kept = append(kept, point.IP)
		}
	}
	for i, point := range new.Status.LoadBalancer.Ingress {
		item := p.Item("ingress", i)
		if point.IP != "" {
			item.Add(address.IP(point.IP, kept, item.Path("ip"))...)
		}
		if point.Hostname != "" {
			item.Format("hostname", point.Hostname, utilvalidation.IsDNS1123Subdomain)
			if isIP(point.Hostname) {
				item.Invalid("hostname", point.Hostname, notAnAddress)
			}
		}
	}
	return p.Errors()
}

// shownHosts is the number of hosts in the column.
const shownHosts = 3

func hosts(rules []networkingv1.IngressRule) string {
	var shown []string
	more := false
	for i := range rules {
		if len(shown) == shownHosts {
			more = true
			break
		}
		if rules[i].Host != "" {
			shown = append(shown, rules[i].Host)
		}
	}
	switch {
	case len(shown) == 0:
		return "*"
	case more:
		return fmt.Sprintf("%s + %d more...", strings.Join(shown, ","), len(rules)-shownHosts)
	}
	return strings.Join(shown, ",")
}

func points(list []networkingv1.IngressLoadBalancerIngress) string {
	var all []string
	for _, point := range list {
		if point.IP != "" {
			all = append(all, point.IP)
		} else if point.Hostname != "" {
			all = append(all, point.Hostname)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}
