package networking

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"skiff/internal/catalog"
	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
)

var NetworkPolicy = catalog.Resource[networkingv1.NetworkPolicy]{
	Group: group, Version: "v1", Kind: "NetworkPolicy", Plural: "networkpolicies", Short: []string{"netpol"}, Namespaced: true,
	Unenforced:          "NetworkPolicies",
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultNetworkPolicy,
	Changed:             catalog.SpecChanged[networkingv1.NetworkPolicy],
	Validate:            func(n *networkingv1.NetworkPolicy) field.ErrorList { return validateNetworkPolicy(&n.Spec, nil) },
	ValidateUpdate: func(new, old *networkingv1.NetworkPolicy) field.ErrorList {
		return validateNetworkPolicy(&new.Spec, &old.Spec)
	},
	Warnings: func(new, _ *networkingv1.NetworkPolicy) []string { return networkPolicyWarnings(&new.Spec) },
	Columns: []catalog.Column[networkingv1.NetworkPolicy]{
		catalog.NameColumn[networkingv1.NetworkPolicy](),
		{Name: "Pod-Selector", Description: networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"],
			Cell: func(n *networkingv1.NetworkPolicy, _ time.Time) any {
				return metav1.FormatLabelSelector(&n.Spec.PodSelector)
			}},
		catalog.AgeColumn[networkingv1.NetworkPolicy](),
	},
	Complete: true,
}

// traffic is one rule of a policy, in either direction, with the names of its fields.
type traffic struct {
	direction, peersName string
	index                int
	ports                []networkingv1.NetworkPolicyPort
	peers                []networkingv1.NetworkPolicyPeer
}

// rules returns all rules of a policy, ingress rules first.
func rules(s *networkingv1.NetworkPolicySpec) []traffic {
	all := make([]traffic, 0, len(s.Ingress)+len(s.Egress))
	for i, r := range s.Ingress {
		all = append(all, traffic{"ingress", "from", i, r.Ports, r.From})
	}
	for i, r := range s.Egress {
		all = append(all, traffic{"egress", "to", i, r.Ports, r.To})
	}
	return all
}

func defaultNetworkPolicy(n *networkingv1.NetworkPolicy) {
	if len(n.Spec.PolicyTypes) == 0 {
		n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(n.Spec.Egress) > 0 {
			n.Spec.PolicyTypes = append(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for _, rule := range rules(&n.Spec) {
		for i := range rule.ports {
			if rule.ports[i].Protocol == nil {
				tcp := corev1.ProtocolTCP
				rule.ports[i].Protocol = &tcp
			}
		}
	}
}

func validateNetworkPolicy(s, old *networkingv1.NetworkPolicySpec) field.ErrorList {
	spec := check.At(field.NewPath("spec"))
	var opts metav1validation.LabelSelectorValidationOptions
	var kept []string // blocks of the old policy, which may stay as they are
	if old != nil {
		before := check.At(nil)
		before.StrictSelector("podSelector", &old.PodSelector)
		opts.AllowInvalidLabelValueInSelector = len(before.Errors()) > 0
		for _, rule := range rules(old) {
			for _, peer := range rule.peers {
				if peer.IPBlock != nil {
					kept = append(append(kept, peer.IPBlock.CIDR), peer.IPBlock.Except...)
				}
			}
		}
	}
	spec.Selector("podSelector", &s.PodSelector, opts)
	for _, rule := range rules(s) {
		p := spec.Item(rule.direction, rule.index)
		for i := range rule.ports {
			validatePolicyPort(p.Item("ports", i), &rule.ports[i])
		}
		for i := range rule.peers {
			validatePeer(p.Item(rule.peersName, i), &rule.peers[i], opts, kept)
		}
	}
	if len(s.PolicyTypes) > 2 {
		spec.Invalid("policyTypes", s.PolicyTypes, "may not specify more than two policyTypes")
		return spec.Errors()
	}
	for i, t := range s.PolicyTypes {
		check.OneOf(spec.Item("policyTypes", i), "", t, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	}
	return spec.Errors()
}

func validatePolicyPort(p *check.Part, port *networkingv1.NetworkPolicyPort) {
	if port.Protocol != nil {
		check.OneOf(p, "protocol", *port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	number := func(name string, value int32) {
		for _, msg := range utilvalidation.IsValidPortNum(int(value)) {
			p.Invalid(name, value, msg)
		}
	}
	switch {
	case port.Port == nil:
		if port.EndPort != nil {
			p.Invalid("endPort", *port.EndPort, "may not be specified when `port` is not specified")
		}
	case port.Port.Type == intstr.Int:
		number("port", port.Port.IntVal)
		if port.EndPort != nil {
			if *port.EndPort < port.Port.IntVal {
				p.Invalid("endPort", *port.EndPort, "must be greater than or equal to `port`")
			}
			number("endPort", *port.EndPort)
		}
	default:
		if port.EndPort != nil {
			p.Invalid("endPort", *port.EndPort, "may not be specified when `port` is non-numeric")
		}
		p.Format("port", port.Port.StrVal, utilvalidation.IsValidPortName)
	}
}

func validatePeer(p *check.Part, peer *networkingv1.NetworkPolicyPeer, opts metav1validation.LabelSelectorValidationOptions, kept []string) {
	p.Selector("podSelector", peer.PodSelector, opts)
	p.Selector("namespaceSelector", peer.NamespaceSelector, opts)
	selects := peer.PodSelector != nil || peer.NamespaceSelector != nil
	if peer.IPBlock == nil {
		p.Present("", selects, "must specify a peer")
		return
	}
	validateBlock(p.Child("ipBlock"), peer.IPBlock, kept)
	if selects {
		p.Forbidden("", "may not specify both ipBlock and another peer")
	}
}

func validateBlock(p *check.Part, b *networkingv1.IPBlock, kept []string) {
	if b.CIDR == "" {
		p.Later().Required("cidr", "")
		return
	}
	p.Add(address.CIDR(b.CIDR, kept, p.Path("cidr"))...)
	_, block, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return
	}
	size, _ := block.Mask.Size()
	for i, text := range b.Except {
		item := p.Item("except", i)
		item.Add(address.CIDR(text, kept, item.Path())...)
		_, except, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		if exceptSize, _ := except.Mask.Size(); !block.Contains(except.IP) || size >= exceptSize {
			item.Invalid("", text, "must be a strict subset of `cidr`")
		}
	}
}

func networkPolicyWarnings(s *networkingv1.NetworkPolicySpec) []string {
	var warnings []string
	for _, rule := range rules(s) {
		for i, peer := range rule.peers {
			if peer.IPBlock == nil {
				continue
			}
			path := field.NewPath("spec", rule.direction).Index(rule.index).Child(rule.peersName).Index(i).Child("ipBlock")
			warnings = append(warnings, address.CIDRWarnings(peer.IPBlock.CIDR, path.Child("cidr"))...)
			for j, except := range peer.IPBlock.Except {
				warnings = append(warnings, address.CIDRWarnings(except, path.Child("except").Index(j))...)
			}
		}
	}
	return warnings
}
