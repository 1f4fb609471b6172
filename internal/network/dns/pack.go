package dns

import (
	"encoding/binary"
	"math"
	"net/netip"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// answer holds the packed records that follow the question in a response. Names in it point to the question, so it fits only the name that
// it was packed for.
type answer struct {
	body                 []byte
	answers, additionals uint16
	step                 int      // the size of each record, if all have the same size and may be rotated; 0 otherwise
	domainOffsets        []uint16 // where the domain is written out in body: it gets the client's spelling
}

// packedName holds the packed answers about one name of a Service.
type packedName struct {
	a, aaaa *answer
	srv     atomic.Pointer[answer] // packed at the first SRV query
	length  int
}

// size returns about how many bytes the answers take, whether or not the SRV records are packed yet.
func (p *packedName) size() int { return p.length }

// target is an address, and a port if it has one, that a name of a Service resolves to.
type target struct {
	addr netip.Addr
	port int32  // -1 if there is none
	host string // the endpoint's hostname within the Service; empty for the Service itself
}

// targets returns what a name resolves to: the Service itself (no argument), one of its ports, or an endpoint. It returns none if the name
// does not exist.
func (e *entry) targets(host, port, protocol []byte) []target {
	switch {
	case len(host) > 0:
		return e.endpoint(string(host))
	case headless(e.service):
		return e.endpoints(string(port), string(protocol))
	}
	var out []target
	match := func(p corev1.ServicePort, number int32) {
		if matches(port, p.Name) && matches(protocol, string(p.Protocol)) {
			for _, addr := range clusterIPs(e.service) {
				out = append(out, target{addr: addr, port: number})
			}
		}
	}
	for _, p := range e.service.Spec.Ports {
		match(p, p.Port)
	}
	if len(e.service.Spec.Ports) == 0 {
		match(corev1.ServicePort{}, -1)
	}
	return out
}

// matches reports whether a label, in lower case, equals a name of the API without regard to case. An empty label matches every name.
func matches(asked []byte, is string) bool {
	if len(asked) == 0 {
		return true
	}
	if len(asked) != len(is) {
		return false
	}
	for i := range len(is) {
		c := is[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != asked[i] {
			return false
		}
	}
	return true
}

// endpoints returns the ready endpoints of a Service that have the port and protocol; an empty one matches all.
func (e *entry) endpoints(port, protocol string) []target {
	var out []target
	for _, slice := range e.slices {
		numbers := portsOf(slice, []byte(port), []byte(protocol))
		if len(numbers) == 0 {
			continue
		}
		for addr, host := range addresses(slice) {
			for _, n := range numbers {
				out = append(out, target{addr, n, host})
			}
		}
	}
	return out
}

func portsOf(slice *discoveryv1.EndpointSlice, name, protocol []byte) []int32 {
	var out []int32
	for i := range slice.Ports {
		p := &slice.Ports[i]
		portName, portProtocol, number := "", "", int32(-1)
		if p.Name != nil {
			portName = *p.Name
		}
		if p.Protocol != nil {
			portProtocol = string(*p.Protocol)
		}
		if p.Port != nil {
			number = *p.Port
		}
		if matches(name, portName) && matches(protocol, portProtocol) {
			out = append(out, number)
		}
	}
	if len(slice.Ports) == 0 && len(name) == 0 && len(protocol) == 0 {
		out = append(out, -1)
	}
	return out
}

// endpoint returns the addresses of the endpoints with a hostname, given in lower case.
func (e *entry) endpoint(host string) []target {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hosts == nil {
		e.hosts = map[string][]target{}
		for _, t := range e.endpoints("", "") {
			name := []byte(t.host)
			lower(name)
			e.hosts[string(name)] = append(e.hosts[string(name)], t)
		}
	}
	return e.hosts[host]
}

// packAddresses packs A or AAAA records of the targets' addresses of that family, each address once.
func packAddresses(kind uint16, ttl uint32, targets []target) *answer {
	a := &answer{step: 16}
	if kind == typeAAAA {
		a.step = 28
	}
	seen := map[netip.Addr]bool{}
	for _, t := range targets {
		if t.addr.Is4() != (kind == typeA) || seen[t.addr] {
			continue
		}
		if len(targets) > 1 {
			seen[t.addr] = true
		}
		a.body = appendAddress(binary.BigEndian.AppendUint16(a.body, toQuestion), ttl, t.addr)
		a.answers++
		if len(a.body) > maxMessage {
			break // more than a message can hold
		}
	}
	return a
}

// appendAddress appends an A or AAAA record without its name.
func appendAddress(dst []byte, ttl uint32, addr netip.Addr) []byte {
	if addr.Is4() {
		ip := addr.As4()
		return append(appendRecord(dst, typeA, ttl, 4), ip[:]...)
	}
	ip := addr.As16()
	return append(appendRecord(dst, typeAAAA, ttl, 16), ip[:]...)
}

// packServers packs SRV records, and the addresses of their targets as additional records. The weights add up to about 100, as CoreDNS's do.
// path holds the encoded labels between an endpoint's hostname and the domain; before is the offset of the answer in the message.
func packServers(ttl uint32, targets []target, path, domain []byte, before int) *answer {
	a := &answer{}
	weight := uint16(max(1, math.Floor(100.0/(100*float64(len(targets)))*100)))
	type server struct {
		host string
		port int32
	}
	type address struct {
		host string
		addr netip.Addr
	}
	written := map[server]bool{}
	hostOffsets := map[string]int{} // where a host's name was first written in the message
	known := map[address]bool{}
	var additionals []address
	for _, t := range targets {
		if t.port < 0 {
			continue
		}
		if !written[server{t.host, t.port}] {
			written[server{t.host, t.port}] = true
			size := 6 + len(path) + len(domain)
			if t.host != "" {
				size += 1 + len(t.host)
			}
			a.body = appendRecord(binary.BigEndian.AppendUint16(a.body, toQuestion), typeSRV, ttl, size)
			a.body = binary.BigEndian.AppendUint16(a.body, 0) // priority
			a.body = binary.BigEndian.AppendUint16(a.body, weight)
			a.body = binary.BigEndian.AppendUint16(a.body, uint16(t.port))
			if _, ok := hostOffsets[t.host]; !ok {
				hostOffsets[t.host] = before + len(a.body)
			}
			a.appendHost(t.host, path, domain)
			a.answers++
		}
		if one := (address{t.host, t.addr}); !known[one] {
			known[one] = true
			additionals = append(additionals, one)
		}
		if len(a.body) > maxMessage {
			break // more than a message can hold
		}
	}
	for _, m := range additionals {
		if hostOffsets[m.host] <= maxOffset {
			a.body = binary.BigEndian.AppendUint16(a.body, 0xC000|uint16(hostOffsets[m.host]))
		} else {
			a.appendHost(m.host, path, domain)
		}
		a.body = appendAddress(a.body, ttl, m.addr)
		a.additionals++
		if len(a.body) > maxMessage {
			break
		}
	}
	return a
}

// appendHost appends the full name of an endpoint or, if host is empty, of a Service.
func (a *answer) appendHost(host string, path, domain []byte) {
	if host != "" {
		a.body = appendLabel(a.body, host)
	}
	a.body = append(a.body, path...)
	if len(a.body) <= maxMessage {
		a.domainOffsets = append(a.domainOffsets, uint16(len(a.body)))
	}
	a.body = append(a.body, domain...)
}
