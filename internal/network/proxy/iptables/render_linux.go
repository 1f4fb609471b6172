package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"skiff/internal/network/proxy/model"
)

// chain is a chain with its rules, each as the text after "-A name".
type chain struct {
	table table
	name  string
	rules []string
}

// renderer returns the chains and rules of Ports. It has no state about them.
type renderer struct {
	scheme
	config model.Config
	recent bool // the kernel has the module recent, for session affinity
	terse  bool // no comments in chains of Services and endpoints
}

// chains returns the chains that belong to a Port alone.
func (w *renderer) chains(p *model.Port) []chain {
	var out []chain
	name := func(kind string) string { return w.chain(kind, p.Key, "") }
	_, external := p.External()
	_, fromCluster := p.ExternalFromCluster()
	if len(p.Cluster) > 0 {
		out = append(out, chain{nat, name(kindService), w.balance(p, p.Cluster, !p.InternalLocal)})
	}
	if len(p.Local) > 0 {
		out = append(out, chain{nat, name(kindLocal), w.balance(p, p.Local, p.InternalLocal)})
	}
	if p.IsExternal() && len(external)+len(fromCluster) > 0 {
		out = append(out, chain{nat, name(kindExternal), w.external(p)})
	}
	if w.restricted(p) {
		inside, outside := chain{nat, name(kindFirewall), nil}, chain{filter, name(kindFirewall), nil}
		for _, r := range p.SourceRanges {
			if len(external)+len(fromCluster) > 0 {
				inside.rules = append(inside.rules, "-s "+r.String()+" -j "+name(kindExternal))
			}
			outside.rules = append(outside.rules, "-s "+r.String()+" -j RETURN")
		}
		outside.rules = append(outside.rules, w.say(p, "is not for this client")+"-j DROP")
		out = append(out, inside, outside)
	}
	for i, e := range slices.Concat(p.Cluster, p.Local) {
		if i >= len(p.Cluster) && contains(p.Cluster, e) { // an endpoint of both lists has one chain
			continue
		}
		out = append(out, chain{nat, w.endpoint(p, e), w.send(p, e)})
	}
	return out
}

func contains(sorted []model.Endpoint, e model.Endpoint) bool {
	_, found := slices.BinarySearchFunc(sorted, e, func(a, b model.Endpoint) int { return a.AddrPort.Compare(b.AddrPort) })
	return found
}

func (w *renderer) endpoint(p *model.Port, e model.Endpoint) string {
	return w.chain(kindEndpoint, p.Key, e.AddrPort.String())
}

func (w *renderer) restricted(p *model.Port) bool {
	return len(p.LoadBalancerIPs) > 0 && len(p.SourceRanges) > 0
}

func (w *renderer) affinity(p *model.Port) bool { return p.Affinity > 0 && w.recent }

// balance returns the rules that choose one of the endpoints. internal says that the cluster IP leads to the chain.
func (w *renderer) balance(p *model.Port, list []model.Endpoint, internal bool) []string {
	var out []string
	if internal {
		out = append(out, w.masquerade(p)...)
	}
	if w.affinity(p) {
		seconds := strconv.Itoa(int((p.Affinity + time.Second - 1) / time.Second))
		for _, e := range list {
			name := w.endpoint(p, e)
			out = append(out, w.say(p, "-> "+e.AddrPort.String())+"-m recent --name "+name+" --rcheck --seconds "+seconds+" --reap -j "+name)
		}
	}
	for i, e := range list {
		rule := w.say(p, "-> "+e.AddrPort.String())
		if rest := len(list) - i; rest > 1 {
			rule += "-m statistic --mode random --probability " + strconv.FormatFloat(1/float64(rest), 'f', 10, 64) + " "
		}
		out = append(out, rule+"-j "+w.endpoint(p, e))
	}
	return out
}

// masquerade returns the rules that masquerade traffic to the cluster IP from outside the cluster, so that answers come back through this node.
func (w *renderer) masquerade(p *model.Port) []string {
	to := w.say(p, "cluster IP") + match(p, p.ClusterIP, p.Port)
	ranges := w.clusterCIDRs(p.Key.Family)
	switch {
	case w.redirect:
	case w.config.MasqueradeAll:
		return []string{to + "-j " + w.mark()}
	case len(ranges) == 1:
		return []string{to + "! -s " + ranges[0].String() + " -j " + w.mark()}
	case len(ranges) > 1:
		return []string{to + "-j " + w.markOutside()}
	}
	return nil
}

// external returns the rules for traffic to external addresses.
func (w *renderer) external(p *model.Port) []string {
	cluster, local := w.chain(kindService, p.Key, ""), w.chain(kindLocal, p.Key, "")
	switch {
	case w.redirect && !p.ExternalLocal:
		return []string{"-j " + cluster}
	case !p.ExternalLocal:
		return []string{w.say(p, "masquerade external traffic") + "-j " + w.mark(), "-j " + cluster}
	}
	var out []string
	if len(p.Cluster) > 0 {
		for _, r := range w.clusterCIDRs(p.Key.Family) {
			out = append(out, w.say(p, "pods go anywhere")+"-s "+r.String()+" -j "+cluster)
		}
		if !w.redirect {
			out = append(out, w.say(p, "masquerade this node's own traffic")+"-m addrtype --src-type LOCAL -j "+w.mark())
		}
		out = append(out, w.say(p, "this node goes anywhere")+"-m addrtype --src-type LOCAL -j "+cluster)
	}
	if len(p.Local) > 0 {
		out = append(out, "-j "+local)
	}
	return out
}

// send returns the rules of an endpoint's chain. Traffic from the endpoint to itself is masqueraded, so that it does not see its own address.
func (w *renderer) send(p *model.Port, e model.Endpoint) []string {
	remember := ""
	if w.affinity(p) {
		remember = "-m recent --name " + w.endpoint(p, e) + " --set "
	}
	say := w.say(p, "")
	to := say + "-p " + p.Key.Protocol.String() + " " + remember + "-j DNAT --to-destination " + e.AddrPort.String()
	if w.redirect {
		return []string{to}
	}
	return []string{say + "-s " + e.Addr().String() + " -j " + w.mark(), to}
}

// rules emits the rules of a Port in shared chains.
func (w *renderer) rules(p *model.Port, emit func(in shared, rule string)) {
	// These rules always have comments: people find a Service's chains by them.
	say := func(what string) string { return comment(name(p) + " " + what) }
	jump := func(kind string) string { return "-j " + w.chain(kind, p.Key, "") }
	internal, _ := p.Internal()
	switch to := say("cluster IP") + match(p, p.ClusterIP, p.Port); {
	case internal != model.Forward:
		emit(filterServices, say(why(internal))+match(p, p.ClusterIP, p.Port)+verdict(internal))
	case p.InternalLocal:
		emit(natServices, to+jump(kindLocal))
	default:
		emit(natServices, to+jump(kindService))
	}

	external, _ := p.External()
	fromCluster, _ := p.ExternalFromCluster()
	forwarded := external == model.Forward || fromCluster == model.Forward
	for i, a := range p.ExternalAddresses() {
		to, kind := match(p, a, p.Port), kindExternal
		if w.restricted(p) && (i >= len(p.ExternalIPs) || slices.Contains(p.LoadBalancerIPs, a)) {
			kind = kindFirewall
			emit(filterFirewall, say("source ranges")+to+jump(kindFirewall))
		}
		if forwarded {
			emit(natServices, say("external IP")+to+jump(kind))
		}
		if external != model.Forward {
			emit(filterExternal, say(why(external))+to+verdict(external))
		}
	}
	if p.NodePort != 0 {
		to := match(p, netip.Addr{}, p.NodePort)
		if forwarded {
			emit(natNodePorts, say("node port")+to+jump(kindExternal))
		}
		if external != model.Forward {
			emit(filterNodePorts, say(why(external))+to+verdict(external))
		}
	}
	if w.redirect {
		for i, e := range slices.Concat(p.Cluster, p.Local) {
			if i < len(p.Cluster) || !contains(p.Cluster, e) {
				emit(filterGuard, say("by way of the service only")+match(p, e.Addr(), e.Port())+"-j REJECT")
			}
		}
	}
}

func why(f model.Verdict) string {
	if f == model.Drop {
		return "has no endpoints on this node"
	}
	return "has no endpoints"
}

func verdict(f model.Verdict) string {
	if f == model.Drop {
		return "-j DROP"
	}
	return "-j REJECT"
}

// match returns a match for packets to a port and, if to is valid, to an address.
func match(p *model.Port, to netip.Addr, port uint16) string {
	protocol := p.Key.Protocol.String()
	out := "-p " + protocol + " -m " + protocol + " --dport " + strconv.Itoa(int(port)) + " "
	if to.IsValid() {
		out = "-d " + to.String() + " " + out
	}
	return out
}

func name(p *model.Port) string {
	if p.Key.Port == "" {
		return p.Key.Namespace + "/" + p.Key.Service
	}
	return p.Key.Namespace + "/" + p.Key.Service + ":" + p.Key.Port
}

// say returns a comment about a Port, or nothing if the rules have no comments.
func (w *renderer) say(p *model.Port, what string) string {
	if w.terse {
		return ""
	}
	if what != "" {
		what = " " + what
	}
	return comment(name(p) + what)
}

// clusterCIDRs returns the cluster CIDRs of a family.
func (w *renderer) clusterCIDRs(f model.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range w.config.ClusterCIDRs {
		if model.FamilyOf(r.Addr()) == f {
			out = append(out, r.Masked())
		}
	}
	return out
}

// base returns the chains whose rules do not depend on Services.
func (w *renderer) base(f model.Family, strict bool) []chain {
	mark := fmt.Sprintf("%#x", w.config.Mark())
	out := []chain{
		{nat, w.mark(), []string{"-j MARK --or-mark " + mark}},
		// The mark is cleared first: a VXLAN packet that encapsulates this one would inherit it.
		{nat, w.postrouting(), []string{
			"-m mark ! --mark " + mark + "/" + mark + " -j RETURN",
			"-j MARK --xor-mark " + mark,
			comment("kubernetes service traffic requiring SNAT") + "-j MASQUERADE --random-fully",
		}},
	}
	outside := chain{table: nat, name: w.markOutside()}
	for _, r := range w.clusterCIDRs(f) {
		outside.rules = append(outside.rules, "-s "+r.String()+" -j RETURN")
	}
	outside.rules = append(outside.rules, "-j "+w.mark())
	forward := chain{table: filter, name: w.forward()}
	if strict {
		// An INVALID packet is not translated back, and its receiver would take it for another connection's.
		forward.rules = append(forward.rules, "-m conntrack --ctstate INVALID -j DROP")
	}
	forward.rules = append(forward.rules,
		comment("kubernetes forwarding rules")+"-m mark --mark "+mark+"/"+mark+" -j ACCEPT",
		comment("kubernetes forwarding conntrack rule")+"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	return append(out, outside, forward)
}

// lastRules returns the rules at the end of a shared chain, after those of Services.
func (w *renderer) lastRules(s shared, f model.Family, state *model.State) []string {
	var out []string
	switch s {
	case natServices:
		for _, where := range w.nodePortAddresses(f) {
			out = append(out, comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")+where+"-j "+w.shared(natNodePorts))
		}
	case filterExternal:
		for _, where := range w.nodePortAddresses(f) {
			out = append(out, where+"-j "+w.shared(filterNodePorts))
		}
	case filterServices:
		for _, r := range state.ServiceCIDRs {
			if model.FamilyOf(r.Addr()) == f {
				out = append(out, comment("no such service")+"-d "+r.String()+" -j DROP")
			}
		}
	}
	return out
}

// nodePortAddresses returns a match for each of the addresses or ranges at which node ports answer.
func (w *renderer) nodePortAddresses(f model.Family) []string {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	if f == model.IPv6 {
		loopback = netip.MustParsePrefix("::1/128")
	}
	local := "! -d " + loopback.String() + " -m addrtype --dst-type LOCAL "
	ranges, everywhere := w.config.NodePortRanges(f)
	if everywhere {
		return []string{local}
	}
	var out []string
	for _, r := range ranges {
		switch {
		case r.Overlaps(loopback):
		case r.IsSingleIP():
			out = append(out, "-d "+r.Addr().String()+" ")
		default:
			out = append(out, "-d "+r.String()+" -m addrtype --dst-type LOCAL ")
		}
	}
	return out
}

// jump is a rule in a built-in chain that jumps to one of the mode's chains.
type jump struct {
	table  table
	from   string
	to     string
	filter string // the match
}

// jumps returns all jumps in the order in which they stand in their chains.
func (w *renderer) jumps() []jump {
	fresh := "-m conntrack --ctstate NEW "
	portals := fresh + comment("kubernetes service portals")
	out := []jump{
		{nat, "PREROUTING", w.shared(natServices), comment("kubernetes service portals")},
		{nat, "OUTPUT", w.shared(natServices), comment("kubernetes service portals")},
		{nat, "POSTROUTING", w.postrouting(), comment("kubernetes postrouting rules")},
	}
	for _, from := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		if w.redirect && from == "INPUT" {
			out = append(out, jump{filter, from, w.shared(filterGuard), "-m conntrack --ctstate NEW -m conntrack ! --ctstate DNAT "})
		}
		out = append(out, jump{filter, from, w.shared(filterFirewall), fresh + comment("kubernetes load balancer firewall")})
		if from != "INPUT" {
			out = append(out, jump{filter, from, w.shared(filterServices), portals})
		}
		out = append(out, jump{filter, from, w.shared(filterExternal), fresh + comment("kubernetes externally-visible service portals")})
	}
	return append(out, jump{filter, "FORWARD", w.forward(), comment("kubernetes forwarding rules")})
}
