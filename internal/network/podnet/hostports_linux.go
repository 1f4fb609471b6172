package podnet

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skiff/internal/network/nftkey"
	"skiff/internal/network/nfttable"
)

// maxHostPorts bounds the host ports of a node.
const maxHostPorts = 10_000

// HostPorts programs the host ports of a node. The zero value has none. After a restart Restore must be called first, because every change
// replaces the kernel's whole table.
type HostPorts struct {
	mu    sync.Mutex
	ports map[string]Ports
	order []string // sandboxes in the order of Set: of two with the same port the later one gets it
}

// Set forwards host ports to a sandbox, in place of those that it had.
func (h *HostPorts) Set(sandbox string, podIPs []netip.Addr, mappings []Mapping) error {
	mappings = slices.DeleteFunc(slices.Clone(mappings), func(m Mapping) bool { return m.HostPort == 0 })
	if len(mappings) == 0 {
		return h.Remove(sandbox)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, had := h.ports[sandbox]
	h.put(sandbox, Ports{podIPs, mappings})
	if err := h.apply(); err != nil {
		h.drop(sandbox)
		if had {
			h.put(sandbox, before)
		}
		return err
	}
	if slices.ContainsFunc(mappings, func(m Mapping) bool { return m.HostIP.Unmap().IsLoopback() }) {
		err := allowLoopbackSources(podIPs)
		return errors.Join(err, deleteConntrackFlows(mappings))
	}
	return deleteConntrackFlows(mappings)
}

// Remove removes the host ports of a sandbox. It does nothing if the sandbox has none.
func (h *HostPorts) Remove(sandbox string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, had := h.ports[sandbox]
	if !had {
		return nil
	}
	h.drop(sandbox)
	if err := h.apply(); err != nil {
		h.put(sandbox, before)
		return err
	}
	return deleteConntrackFlows(before.Mappings)
}

// Restore sets the host ports of all existing sandboxes, in place of the kernel's whole table.
func (h *HostPorts) Restore(all map[string]Ports) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ports, h.order = nil, nil
	for _, id := range slices.Sorted(maps.Keys(all)) {
		h.put(id, all[id])
	}
	return h.apply()
}

func (h *HostPorts) put(sandbox string, p Ports) {
	h.drop(sandbox)
	if h.ports == nil {
		h.ports = map[string]Ports{}
	}
	h.ports[sandbox] = p
	h.order = append(h.order, sandbox)
}

func (h *HostPorts) drop(sandbox string) {
	delete(h.ports, sandbox)
	h.order = slices.DeleteFunc(h.order, func(s string) bool { return s == sandbox })
}

// apply replaces the nftables table by one for the current host ports, or removes it if there are none.
func (h *HostPorts) apply() error {
	if len(h.order) == 0 {
		return nfttable.Remove(nftables.TableFamilyINet, hostPortTable)
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	if err := h.write(c); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("failed to write nftables table %s: %w", hostPortTable, err)
	}
	return nil
}

func (h *HostPorts) write(c *nftables.Conn) error {
	t := nfttable.Anew(c, nftables.TableFamilyINet, hostPortTable)
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Name: name, Table: t, Type: kind, Hooknum: hook, Priority: priority})
	}
	rule := func(chain *nftables.Chain, exprs ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: join(exprs...)})
	}

	ports := c.AddChain(&nftables.Chain{Name: "ports", Table: t})
	jump := []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: ports.Name}}
	rule(chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest), toThisNode(), jump)
	rule(chain("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest), toThisNode(), jump)
	back := chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)

	// Connections of this node to 127.0.0.1 are masqueraded, so that the pod gets an address that it can answer. For that the pod's link must
	// accept loopback sources (allowLoopbackSources); the guard drops packets to loopback addresses that come from other links.
	loopback := ipv4.loopback
	rule(back, isFamily(loopback.Addr()), from(loopback), []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(statusDNAT), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}, masquerade())
	guard := chain("guard", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	rule(guard, []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint16(unix.ARPHRD_LOOPBACK)}},
		isFamily(loopback.Addr()), to(loopback), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})

	for _, f := range []family{ipv4, ipv6} {
		w, err := h.wanted(f)
		if err != nil {
			return err
		}
		if err := w.write(c, t, ports, back, rule); err != nil {
			return err
		}
	}
	return nil
}

// statusDNAT is the conntrack status bit of connections whose destination was changed.
const statusDNAT = 1 << 5

// wanted holds the elements of the maps and sets of one family.
type wanted struct {
	f                        family
	addressed, any, hairpins []nftables.SetElement
}

func (h *HostPorts) wanted(f family) (*wanted, error) {
	w := &wanted{f: f}
	addressed, all, hairpins := map[string][]byte{}, map[string][]byte{}, map[string][]byte{}
	for _, id := range h.order {
		p := h.ports[id]
		i := slices.IndexFunc(p.PodIPs, func(a netip.Addr) bool { return familyOf(a.Unmap()).proto == f.proto })
		if i < 0 {
			continue
		}
		pod := p.PodIPs[i].Unmap().AsSlice()
		for _, m := range p.Mappings {
			proto, err := protocol(m.Protocol)
			if err != nil {
				return nil, err
			}
			host := m.HostIP.Unmap()
			value := padded(pod, bigEndian(m.ContainerPort))
			switch {
			case !host.IsValid() || host.IsUnspecified():
				all[string(padded([]byte{proto}, bigEndian(m.HostPort)))] = value
			case familyOf(host).proto == f.proto:
				addressed[string(padded(host.AsSlice(), []byte{proto}, bigEndian(m.HostPort)))] = value
			default:
				continue
			}
			hairpins[string(padded(pod, pod))] = nil
		}
	}
	if len(addressed)+len(all) > maxHostPorts {
		return nil, fmt.Errorf("more than %d host ports", maxHostPorts)
	}
	w.addressed, w.any, w.hairpins = elements(addressed), elements(all), elements(hairpins)
	return w, nil
}

func elements(m map[string][]byte) []nftables.SetElement {
	var out []nftables.SetElement
	for k, v := range m {
		out = append(out, nftables.SetElement{Key: []byte(k), Val: v})
	}
	slices.SortFunc(out, func(a, b nftables.SetElement) int { return cmp.Compare(string(a.Key), string(b.Key)) })
	return out
}

func (w *wanted) write(c *nftables.Conn, t *nftables.Table, ports, back *nftables.Chain, rule func(*nftables.Chain, ...[]expr.Any)) error {
	if len(w.hairpins) == 0 {
		return nil
	}
	set := func(name string, content []nftables.SetElement, isMap bool, key ...nftables.SetDatatype) (*nftables.Set, error) {
		s := &nftables.Set{Table: t, Name: fmt.Sprintf("%s-%d", name, w.f.length*8), Concatenation: true, IsMap: isMap}
		var err error
		if s.KeyType, err = nftables.ConcatSetType(key...); err != nil {
			return nil, err
		}
		if isMap {
			if s.DataType, err = nftables.ConcatSetType(w.f.address, nftables.TypeInetService); err != nil {
				return nil, err
			}
		}
		if err := c.AddSet(s, nil); err != nil {
			return nil, err
		}
		for chunk := range slices.Chunk(content, 500) { // a message has at most 64 KiB
			if err := c.SetAddElements(s, chunk); err != nil {
				return nil, err
			}
		}
		return s, nil
	}
	addressed, err := set("addressed", w.addressed, true, w.f.address, nftables.TypeInetProto, nftables.TypeInetService)
	if err != nil {
		return err
	}
	anywhere, err := set("any", w.any, true, nftables.TypeInetProto, nftables.TypeInetService)
	if err != nil {
		return err
	}
	hairpins, err := set("hairpins", w.hairpins, false, w.f.address, w.f.address)
	if err != nil {
		return err
	}
	is := []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{w.f.proto}}}
	dest := func() *nftkey.Load {
		return new(nftkey.Load).Header(expr.PayloadBaseNetworkHeader, w.f.dest, w.f.length)
	}
	rule(ports, is, dest().Protocol().Port().Exprs, w.redirect(addressed))
	// Loopback addresses are the node's own: a pod has a port there only if its mapping names the address.
	rule(ports, is, to(w.f.loopback), []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}})
	rule(ports, is, new(nftkey.Load).Protocol().Port().Exprs, w.redirect(anywhere))
	// A pod that connects to itself through its host port must not see its own address as the source.
	rule(back, is, new(nftkey.Load).Header(expr.PayloadBaseNetworkHeader, w.f.source, w.f.length).Header(expr.PayloadBaseNetworkHeader, w.f.dest, w.f.length).Exprs,
		[]expr.Any{&expr.Lookup{SourceRegister: nftkey.Register, SetName: hairpins.Name, SetID: hairpins.ID}}, masquerade())
	return nil
}

// redirect looks up the pod's address and port in a map, and changes the destination to it.
func (w *wanted) redirect(m *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Lookup{SourceRegister: nftkey.Register, DestRegister: nftkey.Register, IsDestRegSet: true, SetName: m.Name, SetID: m.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(w.f.proto), RegAddrMin: nftkey.Register, RegProtoMin: nftkey.Register + w.f.length/4, Specified: true},
	}
}

func bigEndian(port uint16) []byte { return binary.BigEndian.AppendUint16(nil, port) }

func protocol(name string) (byte, error) {
	switch name {
	case "", "TCP":
		return unix.IPPROTO_TCP, nil
	case "UDP":
		return unix.IPPROTO_UDP, nil
	case "SCTP":
		return unix.IPPROTO_SCTP, nil
	}
	return 0, fmt.Errorf("protocol %q is none of TCP, UDP and SCTP", name)
}

// allowLoopbackSources sets route_localnet on the links of pods, so that they accept packets from loopback addresses: see write.
func allowLoopbackSources(podIPs []netip.Addr) error {
	for _, ip := range podIPs {
		if ip = ip.Unmap(); !ip.Is4() {
			continue // IPv6 has no route_localnet: loopback addresses never leave the node
		}
		routes, err := netlink.RouteGet(ip.AsSlice())
		if err != nil || len(routes) == 0 {
			return fmt.Errorf("failed to find the link of pod address %s: %w", ip, err)
		}
		link, err := netlink.LinkByIndex(routes[0].LinkIndex)
		if err != nil {
			return err
		}
		if link.Attrs().Flags&unix.IFF_LOOPBACK != 0 {
			continue
		}
		if err := writeSysctl("net/ipv4/conf/"+link.Attrs().Name+"/route_localnet", "1"); err != nil {
			return err
		}
	}
	return nil
}

// deleteConntrackFlows deletes the conntrack entries of UDP host ports: with them the kernel would keep sending a client's packets to the pod before.
func deleteConntrackFlows(mappings []Mapping) error {
	var failed error
	for _, m := range mappings {
		if m.Protocol != "UDP" {
			continue
		}
		filter := &netlink.ConntrackFilter{}
		if err := errors.Join(filter.AddProtocol(unix.IPPROTO_UDP), filter.AddPort(netlink.ConntrackOrigDstPort, m.HostPort)); err != nil {
			return err
		}
		for _, f := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, f, filter); err != nil && !errors.Is(err, unix.ENOENT) {
				failed = errors.Join(failed, fmt.Errorf("failed to delete conntrack entries of host port %d: %w", m.HostPort, err))
			}
		}
	}
	return failed
}
