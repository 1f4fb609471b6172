// Package ip takes the place of the files of containernetworking/plugins/pkg/ip that masquerade (build.sh puts it there). Upstream runs
// nft or iptables for that; this speaks to the kernel itself, so that "ipMasq": true works on machines that have neither.
package ip

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// MasqueradeTable is the table in which the plugins masquerade. skiff removes it when the node goes down.
const MasqueradeTable = "skiff-cni"

// SetupIPMasqForNetworks masquerades what leaves the networks of the addresses that a container got.
func SetupIPMasqForNetworks(backend *string, ipns []*net.IPNet, network, ifname, containerID string) error {
	if backend != nil && *backend != "nftables" {
		return fmt.Errorf("ipMasqBackend %q: skiff's plugins masquerade with nftables only", *backend)
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Name: MasqueradeTable, Family: nftables.TableFamilyINet})
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, n := range ipns {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: leaving(n), UserData: attachment(network, ifname, containerID)})
	}
	return c.Flush()
}

// TeardownIPMasqForNetworks undoes SetupIPMasqForNetworks.
func TeardownIPMasqForNetworks(_ []*net.IPNet, network, ifname, containerID string) error {
	mine := attachment(network, ifname, containerID)
	return removeRules(func(data []byte) bool { return bytes.Equal(data, mine) })
}

// GCIPMasqForNetwork removes the rules of a network for all containers but those that are named.
func GCIPMasqForNetwork(network string, attachments []types.GCAttachment) error {
	keep := map[string]bool{}
	for _, a := range attachments {
		keep[string(attachment(network, a.IfName, a.ContainerID))] = true
	}
	prefix := attachment(network, "", "")[:16]
	return removeRules(func(data []byte) bool { return bytes.HasPrefix(data, prefix) && !keep[string(data)] })
}

// attachment marks the rules of one interface of one container: 16 digits for the network, 32 for the rest.
func attachment(network, ifname, containerID string) []byte {
	n, a := sha256.Sum256([]byte(network)), sha256.Sum256([]byte(ifname+":"+containerID))
	return []byte(hex.EncodeToString(n[:8]) + hex.EncodeToString(a[:16]))
}

func removeRules(which func(data []byte) bool) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: MasqueradeTable, Family: nftables.TableFamilyINet}
	rules, err := c.GetRules(table, &nftables.Chain{Name: "postrouting", Table: table})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, r := range rules {
		if which(r.UserData) {
			if err := c.DelRule(r); err != nil {
				return err
			}
		}
	}
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) { // which others removed meanwhile
		return err
	}
	return nil
}

// leaving matches packets from an address to others than those of its network and multicast, and masquerades them.
func leaving(n *net.IPNet) []expr.Any {
	family, source, dest, length := byte(unix.NFPROTO_IPV4), uint32(12), uint32(16), uint32(4)
	address, multicast, multicastMask := n.IP.To4(), net.IP{224, 0, 0, 0}, net.IPMask{240, 0, 0, 0}
	if address == nil {
		family, source, dest, length = unix.NFPROTO_IPV6, 8, 24, 16
		address, multicast, multicastMask = n.IP.To16(), append(net.IP{0xff}, make(net.IP, 15)...), append(net.IPMask{0xff}, make(net.IPMask, 15)...)
	}
	exprs := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: source, Len: length},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address},
	}
	for _, not := range []net.IPNet{{IP: address.Mask(n.Mask), Mask: n.Mask}, {IP: multicast, Mask: multicastMask}} {
		exprs = append(exprs,
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: dest, Len: length},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: length, Mask: not.Mask, Xor: make([]byte, length)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: not.IP},
		)
	}
	return append(exprs, &expr.Masq{FullyRandom: true})
}
