package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
)

// The limits of the resolvers of C libraries.
const (
	maxNameservers    = 3
	maxSearchPaths    = 32
	maxSearchLength   = 2048
	maxKernelHostname = 64
)

var dnsPolicies = []corev1.DNSPolicy{corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone}

func (r *rules) dnsPolicy(p *check.Part) {
	oneOfRequired(p, "dnsPolicy", r.spec.DNSPolicy, dnsPolicies)
}

func (r *rules) dnsConfig(p *check.Part) {
	c := r.spec.DNSConfig
	if r.spec.DNSPolicy == corev1.DNSNone {
		if c == nil {
			p.Required("dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
			return
		}
		if len(c.Nameservers) == 0 {
			p.Child("dnsConfig").Required("nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
			return
		}
	}
	if c == nil {
		return
	}
	p = p.Child("dnsConfig")
	if len(c.Nameservers) > maxNameservers {
		p.Invalid("nameservers", c.Nameservers, fmt.Sprintf("must not have more than %d nameservers", maxNameservers))
	}
	for i, ip := range c.Nameservers {
		p.Add(address.IP(ip, nil, p.Path("nameservers").Index(i))...)
	}
	searchPaths(p, c.Searches)
	for i, option := range c.Options {
		if option.Name == "" {
			p.Add(field.Required(p.Path("options").Index(i), "must not be empty"))
		}
	}
}

func searchPaths(p *check.Part, list []string) {
	if len(list) > maxSearchPaths {
		p.Invalid("searches", list, fmt.Sprintf("must not have more than %d search paths", maxSearchPaths))
	}
	if len(strings.Join(list, " ")) > maxSearchLength {
		p.Invalid("searches", list, fmt.Sprintf("must not have more than %d characters (including spaces) in the search list", maxSearchLength))
	}
	for i, domain := range list {
		if domain == "." {
			continue
		}
		domain = strings.TrimSuffix(domain, ".")
		for _, msg := range utilvalidation.IsDNS1123SubdomainWithUnderscore(domain) {
			p.Add(field.Invalid(p.Path("searches").Index(i), domain, msg))
		}
	}
}

// hostNames validates the hostname and subdomain of a pod.
func (r *rules) hostNames(p *check.Part) {
	if r.spec.Hostname != "" {
		p.Format("hostname", r.spec.Hostname, utilvalidation.IsDNS1123Label)
	}
	if r.spec.Subdomain != "" {
		p.Format("subdomain", r.spec.Subdomain, utilvalidation.IsDNS1123Label)
	}
}

// hostnameOverride validates the host name that a pod sets independently of DNS.
func (r *rules) hostnameOverride(p *check.Part) {
	name := r.spec.HostnameOverride
	if name == nil {
		return
	}
	if is(r.spec.SetHostnameAsFQDN) {
		p.Forbidden("hostnameOverride", "may not be specified when setHostnameAsFQDN is true")
	}
	if r.spec.HostNetwork {
		p.Forbidden("hostnameOverride", "may not be specified when hostNetwork is true")
	}
	if len(*name) > maxKernelHostname {
		p.Add(field.TooLong(p.Path("hostnameOverride"), "", maxKernelHostname))
	}
	p.Format("hostnameOverride", *name, utilvalidation.IsDNS1123Subdomain)
}

func (r *rules) hostAliases(p *check.Part) {
	for i, alias := range r.spec.HostAliases {
		at := p.Item("hostAliases", i)
		at.Add(address.IP(alias.IP, nil, at.Path("ip"))...)
		for j, name := range alias.Hostnames {
			for _, msg := range utilvalidation.IsDNS1123Subdomain(name) {
				at.Add(field.Invalid(at.Path("hostnames").Index(j), name, msg))
			}
		}
	}
}
