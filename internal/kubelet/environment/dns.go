package environment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What resolvers can take, which is also what validation of a pod's dnsConfig allows.
const (
	maxNameservers     = 3
	maxSearches        = 32
	maxSearchLine      = 2048
	maxResolvConf      = 10 << 20
	reasonDNSForming   = "DNSConfigForming"
	reasonNoClusterDNS = "MissingClusterDNS"
)

// Resolver is how names are resolved on a node.
type Resolver struct {
	ClusterDNS    []string // addresses of the cluster's DNS, none if there is none
	ClusterDomain string
	Host          *runtimeapi.DNSConfig // the node's resolv.conf, nil if it has none
}

// Warning is something to tell users in an event about the pod.
type Warning struct {
	Reason, Message string
}

// DNS returns the resolver configuration of a pod by its policy and its dnsConfig, cut down to what resolvers can take; the warnings say
// what was left out.
//
// A pod that is not on the host network is never given an address of the node's loopback: nothing answers there. If the node has no other
// resolver such a pod asks the cluster's DNS, which forwards what it does not know.
func (r Resolver) DNS(pod *corev1.Pod) (*runtimeapi.DNSConfig, []Warning) {
	var warnings []Warning
	config := &runtimeapi.DNSConfig{}
	switch policy := effectivePolicy(pod); {
	case policy == corev1.DNSNone:
	case policy == corev1.DNSClusterFirst && len(r.ClusterDNS) > 0:
		config = r.cluster(pod)
	default:
		if policy == corev1.DNSClusterFirst {
			warnings = append(warnings, Warning{reasonNoClusterDNS, fmt.Sprintf("pod: %q. kubelet does not have ClusterDNS IP configured and "+
				"cannot create Pod using %q policy. Falling back to %q policy.", name(pod), corev1.DNSClusterFirst, corev1.DNSDefault)})
		}
		config = r.host(pod)
	}
	if podConfig := pod.Spec.DNSConfig; podConfig != nil {
		config.Servers = distinct(append(config.Servers, podConfig.Nameservers...))
		config.Searches = distinct(append(config.Searches, podConfig.Searches...))
		config.Options = mergedOptions(config.Options, podConfig.Options)
	}
	return config, append(warnings, fit(config)...)
}

// effectivePolicy returns the pod's policy, where ClusterFirst on the host network means Default, and anything unknown ClusterFirst.
func effectivePolicy(pod *corev1.Pod) corev1.DNSPolicy {
	switch pod.Spec.DNSPolicy {
	case corev1.DNSNone, corev1.DNSDefault:
		return pod.Spec.DNSPolicy
	case corev1.DNSClusterFirst:
		if pod.Spec.HostNetwork {
			return corev1.DNSDefault
		}
	}
	return corev1.DNSClusterFirst
}

func (r Resolver) cluster(pod *corev1.Pod) *runtimeapi.DNSConfig {
	searches := r.Host.GetSearches()
	if d := r.ClusterDomain; d != "" {
		searches = distinct(append([]string{pod.Namespace + ".svc." + d, "svc." + d, d}, searches...))
	}
	return &runtimeapi.DNSConfig{Servers: slices.Clone(r.ClusterDNS), Searches: slices.Clone(searches), Options: []string{"ndots:5"}}
}

func (r Resolver) host(pod *corev1.Pod) *runtimeapi.DNSConfig {
	config := &runtimeapi.DNSConfig{Searches: slices.Clone(r.Host.GetSearches()), Options: slices.Clone(r.Host.GetOptions())}
	for _, s := range r.Host.GetServers() {
		if pod.Spec.HostNetwork || !loopback(s) {
			config.Servers = append(config.Servers, s)
		}
	}
	if len(config.Servers) == 0 && !pod.Spec.HostNetwork && len(r.Host.GetServers()) > 0 {
		config.Servers = slices.Clone(r.ClusterDNS)
	}
	if len(config.Servers) == 0 && len(config.Searches) == 0 && len(config.Options) == 0 {
		config.Searches = []string{"."} // given nothing at all, runtimes copy the node's file
	}
	return config
}

// HostResolver reads the node's resolver configuration from the first file of several that names a server others can reach. A node that runs
// a local resolver names its loopback in /etc/resolv.conf and keeps the real servers elsewhere: systemd in
// /run/systemd/resolve/resolv.conf. If no file is better, the first counts.
func HostResolver(files ...string) (*runtimeapi.DNSConfig, error) {
	var first *runtimeapi.DNSConfig
	for i, name := range files {
		config, err := readResolvConf(name)
		if err != nil {
			if i == 0 {
				return nil, err
			}
			continue
		}
		if slices.ContainsFunc(config.Servers, func(s string) bool { return !loopback(s) }) {
			return config, nil
		}
		first = cmp.Or(first, config)
	}
	return first, nil
}

func readResolvConf(name string) (*runtimeapi.DNSConfig, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	config, err := ParseResolvConf(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return config, nil
}

func loopback(server string) bool {
	ip, err := netip.ParseAddr(server)
	return err == nil && ip.Unmap().IsLoopback()
}

// fit cuts a configuration to the limits.
func fit(config *runtimeapi.DNSConfig) []Warning {
	var warnings []Warning
	if len(config.Servers) > maxNameservers {
		config.Servers = config.Servers[:maxNameservers]
		warnings = append(warnings, Warning{reasonDNSForming, "Nameserver limits were exceeded, some nameservers have been omitted, the " +
			"applied nameserver line is: " + strings.Join(config.Servers, " ")})
	}
	all := config.Searches
	searches := slices.Clone(all[:min(len(all), maxSearches)])
	searches = slices.DeleteFunc(searches, func(s string) bool { return len(s) > validation.DNS1123SubdomainMaxLength })
	for len(strings.Join(searches, " ")) > maxSearchLine {
		searches = searches[:len(searches)-1]
	}
	if len(searches) < len(all) {
		config.Searches = searches
		warnings = append(warnings, Warning{reasonDNSForming, "Search Line limits were exceeded, some search paths have been omitted, the " +
			"applied search line is: " + strings.Join(searches, " ")})
	}
	return warnings
}

// ParseResolvConf reads a resolv.conf. Servers add up, of several search lines the last counts, of an option given twice the last value.
func ParseResolvConf(r io.Reader) (*runtimeapi.DNSConfig, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxResolvConf+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxResolvConf {
		return nil, fmt.Errorf("resolv.conf has more than %d bytes", maxResolvConf)
	}
	config := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		switch words[0] {
		case "nameserver":
			if len(words) < 2 {
				return nil, errors.New("a nameserver line of resolv.conf names no server")
			}
			config.Servers = append(config.Servers, words[1])
		case "search":
			config.Searches = nil
			for _, s := range words[1:] {
				if s != "." {
					config.Searches = append(config.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range words[1:] {
				config.Options = withOption(config.Options, o)
			}
		}
	}
	return config, nil
}

// withOption sets an option, in the place it has if it is there already.
func withOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i, o := range options {
		if had, _, _ := strings.Cut(o, ":"); had == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}

func mergedOptions(options []string, podConfig []corev1.PodDNSConfigOption) []string {
	for _, o := range podConfig {
		option := o.Name
		if o.Value != nil && *o.Value != "" {
			option += ":" + *o.Value
		}
		options = withOption(options, option)
	}
	return options
}

func distinct(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool {
		had := seen[s]
		seen[s] = true
		return had
	})
}

func name(pod *corev1.Pod) string { return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID) }
