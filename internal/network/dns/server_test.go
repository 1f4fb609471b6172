package dns

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"skiff/internal/apitest"
)

func TestOptions(t *testing.T) {
	api := apitest.Start(t)
	listen := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	for want, change := range map[string]func(*Options){
		`the cluster's domain cannot be "a..b"`:                            func(o *Options) { o.Domain = "a..b" },
		`the cluster's domain cannot be "."`:                               func(o *Options) { o.Domain = "." },
		"the DNS server has no address to listen on":                       func(o *Options) { o.Listen = nil },
		"the DNS server cannot listen on invalid AddrPort":                 func(o *Options) { o.Listen = []netip.AddrPort{{}} },
		"the DNS server has no client to reach the API with":               func(o *Options) { o.Client = nil },
		`the cluster's domain cannot be "` + strings.Repeat("x", 64) + `"`: func(o *Options) { o.Domain = strings.Repeat("x", 64) },
	} {
		o := asNode(api)
		o.Listen = listen
		change(&o)
		if _, err := New(o); err == nil || err.Error() != want {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// TestTheAddressIsTaken: if another program has the address, Run fails after a while.
func TestTheAddressIsTaken(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		var addr string
		if network == "udp" {
			conn, err := (&net.ListenConfig{Control: shareAddress}).ListenPacket(t.Context(), network, "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			addr = conn.LocalAddr().String()
		} else {
			listener, err := net.Listen(network, "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			addr = listener.Addr().String()
		}
		l := &listeners{}
		err := l.add(t.Context(), netip.MustParseAddrPort(addr))
		if err == nil || !strings.Contains(err.Error(), "address already in use") || len(l.udp)+len(l.tcp) > 0 {
			t.Errorf("%s: %v", network, err)
		}
	}
	// Run that is cancelled meanwhile returns no error.
	o := asNode(apitest.Start(t))
	o.Listen = []netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:10053")} // an address that this machine does not have
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
}

// TestDomain serves another domain than cluster.local.
func TestDomain(t *testing.T) {
	_, server := serveWith(t, func(o *Options) { o.Domain = "K8s.Example." })
	if text := answerText(t, server, "kubernetes.default.svc.k8s.example. A"); !strings.Contains(text, "10.43.0.1") {
		t.Error(text)
	}
	if text := answerText(t, server, "kubernetes.default.svc.cluster.local. A"); !strings.HasPrefix(text, "ServerFailure") {
		t.Error(text)
	}
	if text := answerText(t, server, "1.0.43.10.in-addr.arpa. PTR"); !strings.Contains(text, "PTR kubernetes.default.svc.k8s.example.") {
		t.Error(text)
	}
}

// TestMalformedPackets: malformed packets get the right response code, or no answer, and the server goes on.
func TestMalformedPackets(t *testing.T) {
	_, server := serveWith(t, nil)
	good, _ := packetOf(t, "kubernetes.default.svc.cluster.local. A edns=1232")
	change := func(f func([]byte) []byte) []byte { return f(bytes.Clone(good)) }
	for name, c := range map[string]struct {
		packet []byte
		want   string
	}{
		"another class":            {change(func(b []byte) []byte { b[len(b)-optSize-1] = 3; return b }), "Refused"},
		"any class":                {change(func(b []byte) []byte { b[len(b)-optSize-1] = 255; return b }), "Refused"},
		"no question":              {good[:headerSize], "FormatError"},
		"half a name":              {good[:headerSize+5], "FormatError"},
		"no type":                  {good[:len(good)-optSize-4], "FormatError"},
		"half an option":           {good[:len(good)-3], "FormatError"},
		"a label that is too long": {change(func(b []byte) []byte { b[headerSize] = 64; return b }), "FormatError"},
		"a name that points":       {change(func(b []byte) []byte { b[headerSize], b[headerSize+1] = 0xC0, 12; return b }), "FormatError"},
		"an option with a name": {change(func(b []byte) []byte {
			return append(b[:len(b)-optSize], append([]byte{1, 'x'}, b[len(b)-optSize:]...)...)
		}), "FormatError"},
		"two options":                {change(func(b []byte) []byte { b[11] = 2; return append(b, b[len(b)-optSize:]...) }), "FormatError"},
		"many records":               {change(func(b []byte) []byte { b[10] = 1; return b }), "FormatError"},
		"an answer in the question":  {change(func(b []byte) []byte { b[7] = 2; return b }), "FormatError"},
		"something after it":         {change(func(b []byte) []byte { return append(b, 1, 2, 3) }), "Success"},
		"a name of the longest kind": {change(func([]byte) []byte { return longName(62) }), "NameError"},
		"a name too long":            {change(func([]byte) []byte { return longName(63) }), "FormatError"},
	} {
		for _, tcp := range []bool{false, true} {
			answer, err := exchangePacket(server, c.packet, tcp)
			if text := textOf(answer); err != nil || !strings.HasPrefix(text, c.want) {
				t.Errorf("%s: %v %s, not %s", name, err, text, c.want)
			}
		}
	}
	// These get no answer over UDP, so a packet that gets one follows.
	conn, err := net.Dial("udp", server.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, packet := range [][]byte{{}, {1}, good[:11], change(func(b []byte) []byte { b[2] |= 0x80; return b }), make([]byte, 4000), good} {
		conn.Write(packet)
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if err != nil || !strings.HasPrefix(textOf(answer[:n]), "Success") {
		t.Errorf("%v %s", err, textOf(answer[:n]))
	}
}

// longName returns a query for a name below the domain that takes n+193 bytes.
func longName(n int) []byte {
	packet := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, size := range []int{n, 63, 63, 48} {
		packet = append(append(packet, byte(size)), bytes.Repeat([]byte{'x'}, size)...)
	}
	packet = append(packet, "\x07cluster\x05local\x00"...)
	return binary.BigEndian.AppendUint32(packet, 1<<16|1)
}

func TestMetrics(t *testing.T) {
	external := startUpstream(t)
	s, server := serveWith(t, nil, external.addr)
	for _, question := range []string{"kubernetes.default.svc.cluster.local. A", "kubernetes.default.svc.cluster.local. A tcp", "missing.default.svc.cluster.local. AAAA", "www.example.com. A", "www.example.com. A",
		"missing.example.com. A", "missing.example.com. A", "1.0.43.10.in-addr.arpa. PTR", "cluster.local. AXFR", "cluster.local. A edns=512 version=1"} {
		ask(t, server, question)
	}
	wants := []string{
		`coredns_dns_requests_total{proto="udp",type="A",zone="cluster.local."} 1`, `coredns_dns_requests_total{proto="tcp",type="A",zone="cluster.local."} 1`,
		`coredns_dns_responses_total{rcode="NXDOMAIN",zone="cluster.local."} 1`, `coredns_dns_requests_total{proto="udp",type="A",zone="."} 4`,
		`coredns_dns_requests_total{proto="udp",type="PTR",zone="arpa."} 1`, `coredns_dns_responses_total{rcode="REFUSED",zone=""} 1`, `coredns_dns_responses_total{rcode="BADVERS",zone=""} 1`,
		`coredns_cache_hits_total{type="success"} 1`, `coredns_cache_hits_total{type="denial"} 1`, `coredns_cache_misses_total{} 2`, `coredns_cache_entries{} 2`,
		`coredns_forward_responses_total{rcode="NOERROR",to="` + external.addr.String() + `"} 1`, `coredns_dns_request_duration_seconds{zone="cluster.local."} 3`,
	}
	eventually(t, func() string { // an answer is counted after it has been sent
		families, err := s.Metrics().Gather()
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				fmt.Fprintf(&b, "%s{%s} %v\n", f.GetName(), strings.Join(labels, ","), value)
			}
		}
		for _, want := range wants {
			if !strings.Contains(b.String(), want+"\n") {
				return want + " in\n" + b.String()
			}
		}
		return ""
	})
}

// TestPanicsAreContained: a panic costs one answer.
func TestPanicsAreContained(t *testing.T) {
	s, m := fuzzServer(), &counts{}
	s.log = slog.New(slog.DiscardHandler)
	packet, _ := packetOf(t, "web.shop.svc.cluster.local. A")
	zone := s.zone
	s.zone = nil
	if msg, todo := s.answer(&query{}, packet, true, nil, m); msg != nil || todo != nil || m.panics.Load() != 1 {
		t.Errorf("%v %v, %d panics counted", msg, todo, m.panics.Load())
	}
	s.zone = zone
	if msg, _ := s.answer(&query{}, packet, true, nil, m); msg == nil {
		t.Error("the server does not go on after a panic")
	}
}
