package dns

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// upstream is an upstream DNS server over UDP and TCP at the same port.
type upstream struct {
	addr  netip.AddrPort
	asked atomic.Int64
	tcp   atomic.Int64
	// handle, if set, replaces answer; it returns nil to stay silent.
	handle atomic.Pointer[func(query []byte) (answer []byte, done bool)]

	mu   sync.Mutex
	last []byte
}

func startUpstream(t testing.TB) *upstream {
	t.Helper()
	for range 20 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := listener.Addr().(*net.TCPAddr).AddrPort()
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		if err != nil {
			listener.Close()
			continue // the UDP port is in use
		}
		u := &upstream{addr: addr}
		var serving sync.WaitGroup
		serving.Go(func() { u.serveUDP(conn) })
		serving.Go(func() { u.serveTCP(listener) })
		t.Cleanup(func() {
			conn.Close()
			listener.Close()
			serving.Wait()
		})
		return u
	}
	t.Fatal("no port is free for both protocols")
	return nil
}

func (u *upstream) serveUDP(conn *net.UDPConn) {
	packet := make([]byte, 4096)
	for {
		n, client, err := conn.ReadFromUDPAddrPort(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			if answer := u.answer(slices.Clone(packet[:n]), false); answer != nil {
				conn.WriteToUDPAddrPort(answer, client)
			}
		}
	}
}

func (u *upstream) serveTCP(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if query, err := readFrame(conn); err == nil {
			u.tcp.Add(1)
			if answer := u.answer(query, true); answer != nil {
				conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
			}
		}
		conn.Close()
	}
}

// answer answers for a few names of example.com.
func (u *upstream) answer(query []byte, tcp bool) []byte {
	u.asked.Add(1)
	u.mu.Lock()
	u.last = query
	u.mu.Unlock()
	if handle := u.handle.Load(); handle != nil {
		if answer, done := (*handle)(query); done {
			return answer
		}
	}
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	h.Response, h.RecursionAvailable = true, true
	b := dnsmessage.NewBuilder(nil, h)
	b.EnableCompression()
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	name := strings.ToLower(q.Name.String())
	switch name {
	case "www.example.com.", "alias.example.com.", "big.example.com.", "brief.example.com.":
	case "broken.example.com.":
		h.RCode = dnsmessage.RCodeServerFailure
	default:
		h.RCode = dnsmessage.RCodeNameError
	}
	big := name == "big.example.com." && q.Type == dnsmessage.TypeTXT
	h.Truncated = big && !tcp
	b = dnsmessage.NewBuilder(nil, h)
	b.EnableCompression()
	must(b.StartQuestions())
	must(b.Question(q))
	must(b.StartAnswers())
	owner := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 300}
	if name == "brief.example.com." {
		owner.TTL = 1
	}
	answered := false
	if name == "alias.example.com." {
		must(b.CNAMEResource(owner, dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("www.example.com.")}))
		owner.Name = dnsmessage.MustNewName("www.example.com.")
		answered = true
	}
	if h.RCode == dnsmessage.RCodeSuccess {
		switch {
		case q.Type == dnsmessage.TypeA:
			must(b.AResource(owner, dnsmessage.AResource{A: [4]byte{192, 0, 2, 80}}))
			answered = true
		case big && tcp:
			for i := range 40 {
				must(b.TXTResource(owner, dnsmessage.TXTResource{TXT: []string{strings.Repeat(string(rune('a'+i%26)), 60)}}))
			}
			answered = true
		}
	}
	if !answered && h.RCode != dnsmessage.RCodeServerFailure {
		must(b.StartAuthorities())
		must(b.SOAResource(dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("example.com."), Class: dnsmessage.ClassINET, TTL: 900}, dnsmessage.SOAResource{
			NS: dnsmessage.MustNewName("ns.example.com."), MBox: dnsmessage.MustNewName("root.example.com."), Serial: 1, Refresh: 2, Retry: 3, Expire: 4, MinTTL: 600}))
	}
	if h.Truncated {
		b = dnsmessage.NewBuilder(nil, h)
		must(b.StartQuestions())
		must(b.Question(q))
	}
	must(b.StartAdditionals())
	var opt dnsmessage.ResourceHeader
	must(opt.SetEDNS0(1232, dnsmessage.RCodeSuccess, false))
	must(b.OPTResource(opt, dnsmessage.OPTResource{}))
	msg, err := b.Finish()
	must(err)
	return msg
}
