package dns

import (
	"encoding/binary"
	"net/netip"
)

// reverseAddress returns the address of a name in in-addr.arpa or ip6.arpa, and whether the name is one.
func reverseAddress(q *query) (netip.Addr, bool) {
	if q.labels < 2 || string(q.label(q.labels-1)) != "arpa" {
		return netip.Addr{}, false
	}
	n := q.labels - 2
	switch string(q.label(n)) {
	case "in-addr":
		if n != 4 {
			break
		}
		var ip [4]byte
		for i := range 4 {
			b, ok := decimal(q.label(3 - i))
			if !ok {
				return netip.Addr{}, false
			}
			ip[i] = b
		}
		return netip.AddrFrom4(ip), true
	case "ip6":
		if n != 32 {
			break
		}
		var ip [16]byte
		for i := range 32 {
			digit, ok := hexadecimal(q.label(31 - i))
			if !ok {
				return netip.Addr{}, false
			}
			ip[i/2] = ip[i/2]<<4 | digit
		}
		return netip.AddrFrom16(ip).Unmap(), true
	}
	return netip.Addr{}, false
}

func decimal(label []byte) (byte, bool) {
	if len(label) > 3 || len(label) > 1 && label[0] == '0' {
		return 0, false
	}
	n := 0
	for _, c := range label {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return byte(n), n < 256
}

func hexadecimal(label []byte) (byte, bool) {
	if len(label) != 1 {
		return 0, false
	}
	switch c := label[0]; {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// reverse writes PTR records for an address: of the Service that has it, or else of all endpoints that have it. For addresses outside the
// cluster it returns outcomeForward.
func (z *zone) reverse(q *query, addr netip.Addr, dst []byte) ([]byte, outcome) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	entries, isService := z.clusterIPs[addr], true
	if len(entries) == 0 {
		entries, isService = z.endpoints[addr], false
	}
	if len(entries) == 0 {
		return nil, outcomeForward
	}
	msg := q.begin(dst, flagAuthoritative, rcodeSuccess)
	var names []string
	if isService {
		names = []string{entryKey(entries[0].namespace, entries[0].name)}
	} else {
		names = endpointNames(entries, addr)
	}
	for _, name := range names {
		msg = appendRecord(binary.BigEndian.AppendUint16(msg, toQuestion), typePTR, z.ttl, len(name)+4+len(z.domain))
		msg = append(append(append(msg, name...), "\x03svc"...), z.domain...)
		if len(msg) > maxMessage {
			break
		}
	}
	return q.count(msg, uint16(len(names)), 0, 0), outcomeAnswered
}

// endpointNames returns the encoded names of the endpoints with an address, each once, without "svc" and the domain.
func endpointNames(entries []*entry, addr netip.Addr) []string {
	var names []string
	seen := map[string]bool{}
	for _, e := range entries {
		for _, slice := range e.slices {
			for a, host := range addresses(slice) {
				if a != addr {
					continue
				}
				name := string(appendLabel(nil, host)) + entryKey(e.namespace, e.name)
				if !seen[name] {
					seen[name] = true
					names = append(names, name)
				}
			}
		}
	}
	return names
}
