package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestGoResolves has Go's own resolver, as programs in pods use it, look names up over both protocols and both families.
func TestGoResolves(t *testing.T) {
	external := startUpstream(t)
	api := newCluster(t, "192.0.2.10")
	o := asNode(api, external.addr)
	o.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("[::1]:0")}
	for i, server := range serve(t, o).Addresses() {
		for _, network := range []string{"udp", "tcp"} {
			t.Run([]string{"IPv4", "IPv6"}[i]+" "+network, func(t *testing.T) { goResolves(t, network, server) })
		}
	}
}

func goResolves(t *testing.T, network string, server netip.AddrPort) {
	ctx := t.Context()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, wants, _ string) (net.Conn, error) {
		var d net.Dialer
		if network == "tcp" {
			wants = network
		}
		return d.DialContext(ctx, wants, server.String()) // the resolver itself asks for TCP after a truncated answer
	}}
	for name, want := range map[string]string{
		"web.shop.svc.cluster.local.": "10.0.0.20", "dual.shop.svc.cluster.local.": "10.0.0.22 fd00:43::22", "db.shop.svc.cluster.local.": "10.42.0.6 10.42.1.6 10.42.3.6 fd00:42:1:: fd00:42::6",
		"db-0.db.shop.svc.cluster.local.": "10.42.0.6 fd00:42::6", "1-2-3-4.shop.pod.cluster.local.": "1.2.3.4", "inside-twice.shop.svc.cluster.local.": "10.0.0.20",
		"outside-alias.shop.svc.cluster.local.": "192.0.2.80", "www.example.com.": "192.0.2.80",
	} {
		addrs, err := r.LookupHost(ctx, name)
		slices.Sort(addrs)
		if got := strings.Join(addrs, " "); err != nil || got != want {
			t.Errorf("%s: %s %v, not %s", name, got, err, want)
		}
	}
	if addrs, err := r.LookupHost(ctx, "many.shop.svc.cluster.local."); err != nil || len(addrs) != 32 {
		t.Errorf("many endpoints: %v %v", addrs, err)
	}
	for _, name := range []string{"missing.shop.svc.cluster.local.", "nobody.shop.svc.cluster.local.", "missing.example.com.", "shop.svc.cluster.local."} {
		addrs, err := r.LookupHost(ctx, name)
		var notFound *net.DNSError
		if !errors.As(err, &notFound) || !notFound.IsNotFound {
			t.Errorf("%s: %v %v", name, addrs, err)
		}
	}
	if _, servers, err := r.LookupSRV(ctx, "sql", "tcp", "db.shop.svc.cluster.local."); err != nil || len(servers) != 4 || servers[0].Port != 5432 {
		t.Errorf("SRV: %v %v", servers, err)
	}
	for addr, want := range map[string]string{
		"10.0.0.20": "web.shop.svc.cluster.local.", "10.42.0.6": "db-0.db.shop.svc.cluster.local.", "fd00:42::6": "db-0.db.shop.svc.cluster.local.", "fd00:43::22": "dual.shop.svc.cluster.local.",
	} {
		if names, err := r.LookupAddr(ctx, addr); err != nil || len(names) != 1 || names[0] != want {
			t.Errorf("%s: %v %v, not %s", addr, names, err, want)
		}
	}
	if text, err := r.LookupTXT(ctx, "dns-version.cluster.local."); err != nil || len(text) != 1 || text[0] != specification {
		t.Errorf("the version: %v %v", text, err)
	}
	if name, err := r.LookupCNAME(ctx, "outside.shop.svc.cluster.local."); err != nil || name != "www.example.com." {
		t.Errorf("the alias: %s %v", name, err)
	}
	if text, err := r.LookupTXT(ctx, "big.example.com."); err != nil || len(text) != 40 {
		t.Errorf("a long text from an upstream server: %d %v", len(text), err)
	}
}
