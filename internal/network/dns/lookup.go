package dns

import (
	"encoding/binary"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// outcome is the result of looking a name up in the zone.
type outcome int

const (
	outcomeNXDomain     outcome = iota // the name does not exist
	outcomeNoData                      // the name exists and has no records of the type
	outcomeAnswered                    // the answer is written
	outcomeExternalName                // the name is an ExternalName Service: its target must be looked up
	outcomeForward                     // the address is not the cluster's: the query must be forwarded
)

// The Service of the DNS server itself.
const (
	dnsNamespace = "kube-system"
	dnsService   = "kube-dns"
)

// specification is the version of the Kubernetes DNS specification that is implemented.
const specification = "1.1.0"

// inDomain reports whether the queried name is the cluster domain or below it.
func (z *zone) inDomain(q *query) bool {
	if q.labels < z.labels {
		return false
	}
	if q.labels == z.labels {
		return string(q.name) == string(z.domain)
	}
	return string(q.name[q.labelOffsets[q.labels-z.labels]:]) == string(z.domain)
}

// lookup writes the answer to a query about a name of the cluster domain. If the name is an ExternalName Service, it returns its external name.
func (z *zone) lookup(q *query, dst []byte) (msg []byte, o outcome, externalName string) {
	n := q.labels - z.labels // labels below the domain
	switch q.qtype {
	case typeA, typeAAAA, typeSRV:
		msg, o, externalName = z.records(q, n, dst)
		if o == outcomeExternalName && q.qtype == typeSRV {
			return nil, outcomeNoData, ""
		}
		if o != outcomeNXDomain {
			return msg, o, externalName
		}
		if q.qtype != typeSRV && z.isServer(q, n) {
			return z.serverAddress(q, dst)
		}
		if z.isServer(q, n) {
			return nil, outcomeNoData, ""
		}
		return nil, outcomeNXDomain, ""
	case typeTXT:
		if n == 1 && string(q.label(0)) == "dns-version" {
			msg = q.begin(dst, flagAuthoritative, rcodeSuccess)
			msg = appendRecord(binary.BigEndian.AppendUint16(msg, toQuestion), typeTXT, z.ttl, 1+len(specification))
			return q.count(appendLabel(msg, specification), 1, 0, 0), outcomeAnswered, ""
		}
		_, o, _ = z.records(q, n, nil)
		switch {
		case o == outcomeNoData && n < 3:
			o = outcomeNXDomain // as CoreDNS does for TXT queries of names without any records
		case o == outcomeExternalName:
			o = outcomeNoData
		}
		return nil, o, ""
	case typeSOA:
		if n > 0 {
			return nil, outcomeNoData, "" // whether or not the name exists, as CoreDNS does
		}
		return q.count(q.appendSOA(q.begin(dst, flagAuthoritative, rcodeSuccess), z), 1, 0, 0), outcomeAnswered, ""
	case typeNS:
		if n == 0 {
			return z.nameServer(q, dst), outcomeAnswered, ""
		}
	case typeCNAME:
		if _, o, externalName = z.records(q, n, nil); o == outcomeExternalName {
			if name, err := encodeName(externalName); err == nil {
				msg = appendAlias(q.begin(dst, flagAuthoritative, rcodeSuccess), toQuestion, z.ttl, name)
				return q.count(msg, 1, 0, 0), outcomeAnswered, ""
			}
		}
	}
	if z.isServer(q, n) && q.qtype != typePTR {
		return nil, outcomeNoData, ""
	}
	if _, o, _ = z.records(q, n, nil); o == outcomeExternalName {
		o = outcomeNoData
	}
	return nil, o, ""
}

// isServer reports whether the name is ns.dns below the domain, which the zone's SOA record names as its server.
func (z *zone) isServer(q *query, n int) bool {
	return n == 2 && string(q.label(0)) == "ns" && string(q.label(1)) == "dns"
}

// records looks a name below the domain up. It writes the answer to A, AAAA and SRV queries; for other types it only finds out whether the
// name exists.
func (z *zone) records(q *query, n int, dst []byte) (msg []byte, o outcome, externalName string) {
	if n == 0 {
		return nil, outcomeNoData, ""
	}
	switch string(q.label(n - 1)) {
	case "svc":
		if n >= 3 {
			return z.service(q, n, dst)
		}
	case "pod":
		if n >= 3 {
			msg, o = z.pod(q, n, dst)
			return msg, o, ""
		}
	default:
		return nil, outcomeNXDomain, ""
	}
	if n == 1 || z.hasNamespace(q.label(n-2)) {
		return nil, outcomeNoData, ""
	}
	return nil, outcomeNXDomain, ""
}

func (z *zone) hasNamespace(name []byte) bool {
	z.mu.RLock()
	_, ok := z.namespaces[string(name)]
	z.mu.RUnlock()
	return ok
}

// service answers [endpoint. | _port._protocol.] service.namespace.svc.
func (z *zone) service(q *query, n int, dst []byte) ([]byte, outcome, string) {
	if n > 5 {
		return nil, outcomeNXDomain, ""
	}
	name := q.labelRange(0, n-1) // without "svc": only names of Services are kept packed
	p := z.packedFor(name)
	if p == nil {
		var o outcome
		var externalName string
		if p, o, externalName = z.pack(q, n, name); p == nil {
			return nil, o, externalName
		}
	}
	var a *answer
	switch q.qtype {
	case typeA:
		a = p.a
	case typeAAAA:
		a = p.aaaa
	case typeSRV:
		if a = p.srv.Load(); a == nil {
			if a = z.packServers(q, n); a == nil {
				return nil, outcomeNXDomain, "" // the Service was deleted meanwhile
			}
			p.srv.Store(a)
		}
	}
	if a == nil || a.answers == 0 {
		return nil, outcomeNoData, ""
	}
	return q.write(dst, a, z), outcomeAnswered, ""
}

// pack looks a name of a Service up, packs its addresses and stores them in the zone.
func (z *zone) pack(q *query, n int, name []byte) (*packedName, outcome, string) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	e, targets, externalName := z.find(q, n)
	if externalName != "" {
		return nil, outcomeExternalName, externalName
	}
	if len(targets) == 0 {
		return nil, outcomeNXDomain, ""
	}
	p := &packedName{a: packAddresses(typeA, z.ttl, targets), aaaa: packAddresses(typeAAAA, z.ttl, targets)}
	const overhead, server = 256, 64
	p.length = overhead + 2*len(name) + len(p.a.body) + len(p.aaaa.body) + server*len(targets)
	z.storePacked(e, name, p)
	return p, outcomeAnswered, ""
}

// packServers packs the SRV records of a name.
func (z *zone) packServers(q *query, n int) *answer {
	z.mu.RLock()
	defer z.mu.RUnlock()
	_, targets, _ := z.find(q, n)
	if len(targets) == 0 {
		return nil
	}
	return packServers(z.ttl, targets, q.labelRange(n-3, n), z.domain, headerSize+len(q.question))
}

// find returns the entry of the Service that a name belongs to, and either its targets or its external name. z.mu must be held.
func (z *zone) find(q *query, n int) (e *entry, targets []target, externalName string) {
	e = z.entries[string(q.labelRange(n-3, n-1))]
	if e == nil || e.service == nil {
		return nil, nil, ""
	}
	if e.service.Spec.Type == corev1.ServiceTypeExternalName {
		name := e.service.Spec.ExternalName
		_, notAddress := netip.ParseAddr(name)
		_, notName := encodeName(name)
		if n > 3 || notAddress == nil || notName != nil {
			return e, nil, ""
		}
		return e, nil, name
	}
	switch n {
	case 4:
		return e, e.targets(q.label(0), nil, nil), ""
	case 5:
		return e, e.targets(nil, withoutUnderscore(q.label(0)), withoutUnderscore(q.label(1))), ""
	}
	return e, e.targets(nil, nil, nil), ""
}

func withoutUnderscore(label []byte) []byte {
	if label[0] == '_' {
		return label[1:]
	}
	return label
}

// pod answers a-b-c-d.namespace.pod from the name alone, whether or not there is such a pod. Labels before the address are ignored.
func (z *zone) pod(q *query, n int, dst []byte) ([]byte, outcome) {
	if n > 5 || !z.hasNamespace(q.label(n-2)) {
		return nil, outcomeNXDomain
	}
	text := string(q.label(n - 3))
	if strings.Count(text, "-") == 3 && !strings.Contains(text, "--") {
		text = strings.ReplaceAll(text, "-", ".")
	} else {
		text = strings.ReplaceAll(text, "-", ":")
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return nil, outcomeNXDomain
	}
	addr = addr.Unmap()
	one := []target{{addr: addr}}
	switch {
	case q.qtype == typeSRV:
		a := packServers(z.ttl, one, q.labelRange(n-3, n), z.domain, headerSize+len(q.question))
		return q.write(dst, a, z), outcomeAnswered
	case q.qtype == typeA && addr.Is4() || q.qtype == typeAAAA && addr.Is6():
		return q.write(dst, packAddresses(q.qtype, z.ttl, one), z), outcomeAnswered
	}
	return nil, outcomeNoData
}

// server returns the addresses of the kube-dns Service, or the node's addresses that this server listens on if there is no such Service.
func (z *zone) server() (addrs []netip.Addr, isService bool) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	if e := z.entries[entryKey(dnsNamespace, dnsService)]; e != nil && e.service != nil {
		if addrs = clusterIPs(e.service); len(addrs) > 0 {
			return addrs, true
		}
	}
	return z.serverAddrs, false
}

func (z *zone) serverAddress(q *query, dst []byte) ([]byte, outcome, string) {
	addrs, _ := z.server()
	var targets []target
	for _, addr := range addrs {
		targets = append(targets, target{addr: addr})
	}
	if a := packAddresses(q.qtype, z.ttl, targets); a.answers > 0 {
		return q.write(dst, a, z), outcomeAnswered, ""
	}
	return nil, outcomeNoData, ""
}

// nameServer answers an NS query about the domain.
func (z *zone) nameServer(q *query, dst []byte) []byte {
	const toDomain = toQuestion
	addrs, isService := z.server()
	host := appendLabel(appendLabel(nil, "ns"), "dns")
	if isService {
		host = append([]byte(entryKey(dnsNamespace, dnsService)), "\x03svc"...)
	}
	msg := q.begin(dst, flagAuthoritative, rcodeSuccess)
	msg = appendRecord(binary.BigEndian.AppendUint16(msg, toDomain), typeNS, z.ttl, len(host)+2)
	toHost := 0xC000 | uint16(len(msg)-len(dst))
	msg = binary.BigEndian.AppendUint16(append(msg, host...), toDomain)
	for _, addr := range addrs {
		msg = appendAddress(binary.BigEndian.AppendUint16(msg, toHost), z.ttl, addr)
	}
	return q.count(msg, 1, 0, uint16(len(addrs)))
}
