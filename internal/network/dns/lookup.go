package dns

import (
	"encoding/binary"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// outcome is what a name means.
type outcome int

const (
	noName   outcome = iota // there is no such name
	noRecord                // there is the name, and nothing of the asked kind
	answered                // the answer is written
	external                // it stands for a name that must be looked up
	passOn                  // others may know
)

// Where the name server itself is found.
const (
	dnsNamespace = "kube-system"
	dnsService   = "kube-dns"
)

// specification is the version of the specification that is implemented.
const specification = "1.1.0"

// inDomain says whether a name is the domain or below it.
func (z *zone) inDomain(q *query) bool {
	if q.labels < z.labels {
		return false
	}
	if q.labels == z.labels {
		return string(q.name) == string(z.domain)
	}
	return string(q.name[q.at[q.labels-z.labels]:]) == string(z.domain)
}

// lookup writes the answer to a question about a name of the domain. If the name stands for one elsewhere, that is returned.
func (z *zone) lookup(q *query, dst []byte) (msg []byte, o outcome, elsewhere string) {
	n := q.labels - z.labels // labels below the domain
	switch q.kind {
	case typeA, typeAAAA, typeSRV:
		msg, o, elsewhere = z.records(q, n, dst)
		if o == external && q.kind == typeSRV {
			return nil, noRecord, ""
		}
		if o != noName {
			return msg, o, elsewhere
		}
		if q.kind != typeSRV && z.isServer(q, n) {
			return z.serverAddress(q, dst)
		}
		if z.isServer(q, n) {
			return nil, noRecord, ""
		}
		return nil, noName, ""
	case typeTXT:
		if n == 1 && string(q.label(0)) == "dns-version" {
			msg = q.begin(dst, flagAuthoritative, rcodeSuccess)
			msg = appendRecord(binary.BigEndian.AppendUint16(msg, toQuestion), typeTXT, z.ttl, 1+len(specification))
			return q.count(appendLabel(msg, specification), 1, 0, 0), answered, ""
		}
		_, o, _ = z.records(q, n, nil)
		switch {
		case o == noRecord && n < 3:
			o = noName // as CoreDNS: what has no records at all has no such name, for this kind
		case o == external:
			o = noRecord
		}
		return nil, o, ""
	case typeSOA:
		if n > 0 {
			return nil, noRecord, "" // without a look at the name, as CoreDNS
		}
		return q.count(q.appendSOA(q.begin(dst, flagAuthoritative, rcodeSuccess), z), 1, 0, 0), answered, ""
	case typeNS:
		if n == 0 {
			return z.nameServer(q, dst), answered, ""
		}
	case typeCNAME:
		if _, o, elsewhere = z.records(q, n, nil); o == external {
			if name, err := encodeName(elsewhere); err == nil {
				msg = appendAlias(q.begin(dst, flagAuthoritative, rcodeSuccess), toQuestion, z.ttl, name)
				return q.count(msg, 1, 0, 0), answered, ""
			}
		}
	}
	if z.isServer(q, n) && q.kind != typePTR {
		return nil, noRecord, ""
	}
	if _, o, _ = z.records(q, n, nil); o == external {
		o = noRecord
	}
	return nil, o, ""
}

// isServer says whether a name is the one under which the zone itself names its server.
func (z *zone) isServer(q *query, n int) bool {
	return n == 2 && string(q.label(0)) == "ns" && string(q.label(1)) == "dns"
}

// records finds what a name stands for. It writes the answer if there are addresses or servers of the kind asked for, and only looks whether
// there is such a name if it is asked for another kind.
func (z *zone) records(q *query, n int, dst []byte) (msg []byte, o outcome, elsewhere string) {
	if n == 0 {
		return nil, noRecord, ""
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
		return nil, noName, ""
	}
	if n == 1 || z.hasNamespace(q.label(n-2)) {
		return nil, noRecord, ""
	}
	return nil, noName, ""
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
		return nil, noName, ""
	}
	name := q.from(0, n-1) // without "svc": nothing else is kept packed
	p := z.known(name)
	if p == nil {
		var o outcome
		var elsewhere string
		if p, o, elsewhere = z.pack(q, n, name); p == nil {
			return nil, o, elsewhere
		}
	}
	var a *answer
	switch q.kind {
	case typeA:
		a = p.a
	case typeAAAA:
		a = p.aaaa
	case typeSRV:
		if a = p.srv.Load(); a == nil {
			if a = z.packServers(q, n); a == nil {
				return nil, noName, "" // it is gone meanwhile
			}
			p.srv.Store(a)
		}
	}
	if a == nil || a.answers == 0 {
		return nil, noRecord, ""
	}
	return q.write(dst, a, z), answered, ""
}

// pack finds what a name of a Service stands for, packs its addresses and keeps them.
func (z *zone) pack(q *query, n int, name []byte) (*packedName, outcome, string) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	e, targets, elsewhere := z.find(q, n)
	if elsewhere != "" {
		return nil, external, elsewhere
	}
	if len(targets) == 0 {
		return nil, noName, ""
	}
	p := &packedName{a: packAddresses(typeA, z.ttl, targets), aaaa: packAddresses(typeAAAA, z.ttl, targets)}
	const overhead, server = 256, 64
	p.length = overhead + 2*len(name) + len(p.a.body) + len(p.aaaa.body) + server*len(targets)
	z.keep(e, name, p)
	return p, answered, ""
}

// packServers packs the SRV records of a name.
func (z *zone) packServers(q *query, n int) *answer {
	z.mu.RLock()
	defer z.mu.RUnlock()
	_, targets, _ := z.find(q, n)
	if len(targets) == 0 {
		return nil
	}
	return packServers(z.ttl, targets, q.from(n-3, n), z.domain, headerSize+len(q.question))
}

// find finds what a name stands for. mu is held.
func (z *zone) find(q *query, n int) (e *entry, targets []target, elsewhere string) {
	e = z.entries[string(q.from(n-3, n-1))]
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

// pod answers a-b-c-d.namespace.pod, whether or not there is such a pod; labels before that mean nothing.
func (z *zone) pod(q *query, n int, dst []byte) ([]byte, outcome) {
	if n > 5 || !z.hasNamespace(q.label(n-2)) {
		return nil, noName
	}
	text := string(q.label(n - 3))
	if strings.Count(text, "-") == 3 && !strings.Contains(text, "--") {
		text = strings.ReplaceAll(text, "-", ".")
	} else {
		text = strings.ReplaceAll(text, "-", ":")
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return nil, noName
	}
	addr = addr.Unmap()
	one := []target{{addr: addr}}
	switch {
	case q.kind == typeSRV:
		a := packServers(z.ttl, one, q.from(n-3, n), z.domain, headerSize+len(q.question))
		return q.write(dst, a, z), answered
	case q.kind == typeA && addr.Is4() || q.kind == typeAAAA && addr.Is6():
		return q.write(dst, packAddresses(q.kind, z.ttl, one), z), answered
	}
	return nil, noRecord
}

// server is where this server is found: the addresses of its Service, or its own if there is none.
func (z *zone) server() (addrs []netip.Addr, isService bool) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	if e := z.entries[entryKey(dnsNamespace, dnsService)]; e != nil && e.service != nil {
		if addrs = clusterIPs(e.service); len(addrs) > 0 {
			return addrs, true
		}
	}
	return z.own, false
}

func (z *zone) serverAddress(q *query, dst []byte) ([]byte, outcome, string) {
	addrs, _ := z.server()
	var targets []target
	for _, addr := range addrs {
		targets = append(targets, target{addr: addr})
	}
	if a := packAddresses(q.kind, z.ttl, targets); a.answers > 0 {
		return q.write(dst, a, z), answered, ""
	}
	return nil, noRecord, ""
}

// nameServer answers who serves the domain.
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
