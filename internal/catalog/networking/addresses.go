package networking

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

var IPAddress = catalog.Resource[networkingv1.IPAddress]{
	Group: group, Version: "v1", Kind: "IPAddress", Plural: "ipaddresses", Short: []string{"ip"},
	Name:                nameIsAddress,
	UnconditionalUpdate: true,
	Validate:            func(a *networkingv1.IPAddress) field.ErrorList { return validateIPAddress(&a.Spec, nil) },
	ValidateUpdate: func(new, old *networkingv1.IPAddress) field.ErrorList {
		return validateIPAddress(&new.Spec, &old.Spec)
	},
	Columns: []catalog.Column[networkingv1.IPAddress]{
		catalog.NameColumn[networkingv1.IPAddress](),
		{Name: "ParentRef", Description: networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"],
			Cell: func(a *networkingv1.IPAddress, _ time.Time) any { return parent(a.Spec.ParentRef) }},
	},
	Complete: true,
}

var ServiceCIDR = catalog.Resource[networkingv1.ServiceCIDR]{
	Group: group, Version: "v1", Kind: "ServiceCIDR", Plural: "servicecidrs",
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Validate: func(c *networkingv1.ServiceCIDR) field.ErrorList {
		spec := check.At(field.NewPath("spec"))
		validateCIDRs(spec, &c.Spec)
		return spec.Errors()
	},
	ValidateUpdate: validateServiceCIDRUpdate,
	Status: &catalog.Edit[networkingv1.ServiceCIDR]{
		PrepareUpdate: func(new, old *networkingv1.ServiceCIDR) { metav1.ResetObjectMetaForStatus(new, old) },
		ResetFields:   []string{"metadata"},
	},
	Columns: []catalog.Column[networkingv1.ServiceCIDR]{
		catalog.NameColumn[networkingv1.ServiceCIDR](),
		{Name: "CIDRs", Description: networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"],
			Cell: func(c *networkingv1.ServiceCIDR, _ time.Time) any { return strings.Join(c.Spec.CIDRs, ",") }},
		catalog.AgeColumn[networkingv1.ServiceCIDR](),
	},
	Complete: true,
}

func isIP(text string) bool { return netutils.ParseIPSloppy(text) != nil }

// nameIsAddress requires the name to be the address.
func nameIsAddress(name string, _ bool) []string {
	var msgs []string
	for _, err := range utilvalidation.IsValidIP(nil, name) {
		msgs = append(msgs, err.Detail)
	}
	return msgs
}

func validateIPAddress(s, old *networkingv1.IPAddressSpec) field.ErrorList {
	spec := check.At(field.NewPath("spec"))
	changed := old != nil && !apiequality.Semantic.DeepEqual(s.ParentRef, old.ParentRef)
	ref := s.ParentRef
	if ref == nil {
		spec.Later().Required("parentRef", "")
	} else {
		p := spec.Child("parentRef")
		if ref.Group != "" {
			p.Format("group", ref.Group, utilvalidation.IsDNS1123Subdomain)
		}
		required := p.Later()
		if changed {
			required = p // the fields of an immutable reference are not validated again
		}
		segment(p, required, "resource", ref.Resource)
		segment(p, required, "name", ref.Name)
		segment(p, nil, "namespace", ref.Namespace)
	}
	if changed {
		spec.Later().Invalid("parentRef", nil, validation.FieldImmutableErrorMsg)
	}
	return spec.Errors()
}

func parent(ref *networkingv1.ParentReference) string {
	if ref == nil {
		return "<none>"
	}
	name := strings.ToLower(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}.String())
	if ref.Namespace != "" {
		name += "/" + ref.Namespace
	}
	return name + "/" + ref.Name
}

// validateCIDRs requires one CIDR block, or one of each family.
func validateCIDRs(spec *check.Part, s *networkingv1.ServiceCIDRSpec) {
	switch {
	case len(s.CIDRs) == 0:
		spec.Required("cidrs", "at least one CIDR required")
		return
	case len(s.CIDRs) > 2:
		spec.Invalid("cidrs", check.Internal(s), "may only hold up to 2 values")
		return
	}
	for i, cidr := range s.CIDRs {
		spec.Add(utilvalidation.IsValidCIDR(spec.Path("cidrs").Index(i), cidr)...)
	}
	if len(s.CIDRs) == 2 {
		first, second := netutils.IPFamilyOfCIDRString(s.CIDRs[0]), netutils.IPFamilyOfCIDRString(s.CIDRs[1])
		if first == second && first != netutils.IPFamilyUnknown {
			spec.Invalid("cidrs", s.CIDRs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64")
		}
	}
}

// validateServiceCIDRUpdate allows only a CIDR block of the second family to be added.
func validateServiceCIDRUpdate(new, old *networkingv1.ServiceCIDR) field.ErrorList {
	spec := check.At(field.NewPath("spec"))
	n, o := new.Spec.CIDRs, old.Spec.CIDRs
	added := len(o) == 1 && len(n) == 2
	if len(n) != len(o) && !added {
		spec.Invalid("cidrs", n, validation.FieldImmutableErrorMsg)
		return spec.Errors()
	}
	for i := range o {
		if n[i] != o[i] {
			spec.Item("cidrs", i).Invalid("", n[i], validation.FieldImmutableErrorMsg)
		}
	}
	if added {
		validateCIDRs(spec, &new.Spec)
	}
	return spec.Errors()
}
