package dns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skiff/internal/apitest"
)

// silent makes the upstream server answer nothing.
func (u *upstream) silent() {
	nothing := func([]byte) ([]byte, bool) { return nil, true }
	u.handle.Store(&nothing)
}

func (u *upstream) set(handle func(query []byte) ([]byte, bool)) { u.handle.Store(&handle) }

func serveWith(t *testing.T, change func(*Options), upstreams ...netip.AddrPort) (*Server, netip.AddrPort) {
	t.Helper()
	o := asNode(apitest.Start(t), upstreams...)
	if change != nil {
		change(&o)
	}
	s := serve(t, o)
	return s, s.Addresses()[0]
}

// serveWithTimeouts serves with other timeouts for forwarded queries: in all, and for each try.
func serveWithTimeouts(t *testing.T, forwardTimeout, try time.Duration, upstreams ...netip.AddrPort) (*Server, netip.AddrPort) {
	t.Helper()
	s := serve(t, asNode(apitest.Start(t), upstreams...), func(s *Server) {
		s.forward.timeout, s.forward.tryTimeouts = forwardTimeout, []time.Duration{try}
	})
	return s, s.Addresses()[0]
}

// TestOthersAreAskedOnce: upstream responses are cached by name and type, including NXDOMAIN.
func TestOthersAreAskedOnce(t *testing.T) {
	external := startUpstream(t)
	_, server := serveWith(t, nil, external.addr)
	for i, question := range []string{"www.example.com. A", "www.example.com. AAAA", "missing.example.com. A", "www.example.com. A edns=4096 do", "www.example.com. A cd"} {
		first := answerText(t, server, question)
		for range 5 {
			if again := answerText(t, server, question); again != first {
				t.Errorf("%s: first\n%s\nthen\n%s", question, first, again)
			}
		}
		answerText(t, server, strings.ToUpper(question[:3])+question[3:])
		if n := external.asked.Load(); n != int64(i+1) {
			t.Errorf("%s: asked %d times in all, not %d", question, n, i+1)
		}
	}
	if text := answerText(t, server, "www.example.com. A"); !strings.Contains(text, "answer www.example.com. 30 A 192.0.2.80") {
		t.Error(text)
	}
}

func TestRememberedAnswersAge(t *testing.T) {
	external := &upstream{}
	packet, _ := packetOf(t, "brief.example.com. A")
	now := time.Now()
	r, err := newResponse(external.answer(packet, false), now)
	if err != nil {
		t.Fatal(err)
	}
	m, q := newResponseCache(1<<16), &query{}
	q.read(packet, true)
	key := q.key(nil)
	m.put(string(key), r)
	if m.get(key, now.Add(999*time.Millisecond)) == nil || m.get(key, now.Add(time.Second)) != nil || m.len() != 0 || m.bytes != 0 {
		t.Errorf("an answer good for one second: %d of %d bytes are left", m.len(), m.bytes)
	}
	packet, _ = packetOf(t, "www.example.com. A")
	if r, err = newResponse(external.answer(packet, false), now); err != nil {
		t.Fatal(err)
	}
	q.read(packet, true)
	for after, want := range map[time.Duration]string{0: " 30 A", 1500 * time.Millisecond: " 29 A", 29 * time.Second: " 1 A", time.Hour: " 0 A"} {
		if text := textOf(r.write(q, nil, now.Add(after))); !strings.Contains(text, "www.example.com."+want) {
			t.Errorf("after %v: %s", after, text)
		}
	}
	// The most recently used responses stay.
	m = newResponseCache(1 << 15)
	for i := range 200 {
		copied := *r
		m.put(fmt.Sprint(i), &copied)
		m.get([]byte("0"), now)
	}
	if m.bytes > 1<<15 || m.get([]byte("0"), now) == nil || m.get([]byte("199"), now) == nil || m.get([]byte("1"), now) != nil {
		t.Errorf("%d answers of %d bytes are cached", m.len(), m.bytes)
	}
}

// TestTheNextServerIsAsked: one server is silent, one fails, one refuses connections; the next one is asked, and preferred from then on.
func TestTheNextServerIsAsked(t *testing.T) {
	silent, failing, good := startUpstream(t), startUpstream(t), startUpstream(t)
	silent.silent()
	failing.set(func(query []byte) ([]byte, bool) {
		query[2] |= 0x80
		query[3] = query[3]&^0xF | rcodeRefused
		return query, true
	})
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := netip.MustParseAddrPort(closed.LocalAddr().String())
	closed.Close()
	_, server := serveWithTimeouts(t, forwardTimeout, 200*time.Millisecond, nobody, failing.addr, silent.addr, good.addr)
	if text := answerText(t, server, "www.example.com. A"); !strings.Contains(text, "192.0.2.80") {
		t.Fatal(text)
	}
	begin, before := time.Now(), silent.asked.Load()
	if text := answerText(t, server, "alias.example.com. A"); !strings.Contains(text, "192.0.2.80") || silent.asked.Load() != before {
		t.Errorf("the silent one was asked again, after %v: %s", time.Since(begin), text)
	}
}

func TestNobodyAnswers(t *testing.T) {
	silent := startUpstream(t)
	silent.silent()
	_, server := serveWithTimeouts(t, 300*time.Millisecond, 100*time.Millisecond, silent.addr)
	begin := time.Now()
	if text := answerText(t, server, "www.example.com. A"); !strings.HasPrefix(text, "ServerFailure") {
		t.Error(text)
	}
	if silent.asked.Load() < 2 {
		t.Errorf("asked %d times within %v", silent.asked.Load(), time.Since(begin))
	}
	asked := silent.asked.Load()
	if text := answerText(t, server, "www.example.com. A"); !strings.HasPrefix(text, "ServerFailure") || silent.asked.Load() != asked {
		t.Errorf("asked again at once: %s", text)
	}
	if text := answerText(t, server, "kubernetes.default.svc.cluster.local. A"); !strings.HasPrefix(text, "Success") {
		t.Error(text)
	}
	// Further queries use the shorter timeouts until a server answers again.
	s, server := serveWithTimeouts(t, testTimeout, testTimeout, silent.addr)
	s.forward.unreachableUntil.Store(time.Now().Add(testTimeout).UnixNano())
	begin = time.Now()
	if text := answerText(t, server, "www.example.com. A"); !strings.HasPrefix(text, "ServerFailure") || time.Since(begin) > testTimeout/2 {
		t.Errorf("after %v: %s", time.Since(begin), text)
	}
	silent.handle.Store(nil)
	if text := answerText(t, server, "alias.example.com. A"); !strings.Contains(text, "192.0.2.80") || s.forward.unreachableUntil.Load() != 0 {
		t.Error(text)
	}
	// There is no upstream server at all, and then only this server itself.
	_, server = serveWith(t, nil)
	if text := answerText(t, server, "www.example.com. A"); !strings.HasPrefix(text, "ServerFailure") {
		t.Error(text)
	}
}

// TestLongAnswers: a truncated response is fetched over TCP, and given in full to clients that accept its size.
func TestLongAnswers(t *testing.T) {
	external := startUpstream(t)
	_, server := serveWith(t, nil, external.addr)
	if text := answerText(t, server, "big.example.com. TXT tcp"); strings.Count(text, "\nanswer") != 40 || external.tcp.Load() != 1 {
		t.Errorf("%d over TCP: %s", external.tcp.Load(), text)
	}
	for _, question := range []string{"big.example.com. TXT", "big.example.com. TXT edns=1232"} {
		msg := ask(t, server, question)
		if text := textOf(msg); !strings.Contains(strings.Split(text, "\n")[0], " tc") || strings.Contains(text, "unreadable") || len(msg) > 1232 || !strings.Contains(question, "edns") && len(msg) > 512 {
			t.Errorf("%s: %d bytes: %s", question, len(msg), text)
		}
	}
	if msg := ask(t, server, "big.example.com. TXT edns=4096"); strings.Count(textOf(msg), "\nanswer") != 40 {
		t.Errorf("%s", textOf(msg))
	}
}

// TestForgedAnswers: responses with another id or question, and from other addresses, are ignored.
func TestForgedAnswers(t *testing.T) {
	external := startUpstream(t)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		packet := make([]byte, 4096)
		for {
			n, client, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			truth := external.answer(append([]byte{}, packet[:n]...), false)
			for _, forge := range []func([]byte) []byte{
				func(b []byte) []byte { b[0]++; return b },               // another ID
				func(b []byte) []byte { b[2] &^= 0x80; return b },        // a question
				func(b []byte) []byte { b[headerSize+1] ^= 1; return b }, // another name
				func(b []byte) []byte { return b[:headerSize+3] },        // a part
				func(b []byte) []byte { b[5] = 0; return b },             // without the question
				func(b []byte) []byte { return nil },
			} {
				lie := forge(append([]byte{}, truth...))
				conn.WriteTo(lie, client)
			}
			conn.WriteTo(truth, client)
		}
	})
	t.Cleanup(func() {
		conn.Close()
		serving.Wait()
	})
	_, server := serveWith(t, nil, netip.MustParseAddrPort(conn.LocalAddr().String()))
	if text := answerText(t, server, "www.example.com. A"); !strings.Contains(text, "answer www.example.com. 30 A 192.0.2.80") {
		t.Error(text)
	}
}

// TestOldServer: a server that does not support EDNS is asked without it.
func TestOldServer(t *testing.T) {
	external := startUpstream(t)
	external.set(func(query []byte) ([]byte, bool) {
		if query[11] == 0 {
			return nil, false
		}
		query[2] |= 0x80
		query[3] = query[3]&^0xF | rcodeFormatError
		query[11] = 0
		return query[:len(query)-optSize], true
	})
	_, server := serveWith(t, nil, external.addr)
	if text := answerText(t, server, "www.example.com. A"); !strings.Contains(text, "192.0.2.80") {
		t.Error(text)
	}
}

// TestTogetherAndInCircles: concurrent queries with the same question are forwarded once, and an upstream server that forwards back to this one does not cause a loop.
func TestTogetherAndInCircles(t *testing.T) {
	external := startUpstream(t)
	release := make(chan struct{})
	external.set(func([]byte) ([]byte, bool) { <-release; return nil, false })
	s, server := serveWithTimeouts(t, testTimeout, testTimeout, external.addr)
	var asking sync.WaitGroup
	for range 50 {
		asking.Go(func() {
			if text := answerText(t, server, "www.example.com. A"); !strings.Contains(text, "192.0.2.80") {
				t.Error(text)
			}
		})
	}
	eventually(t, func() string {
		if n := len(s.forward.slots); n != 50 {
			return fmt.Sprintf("50 questions that wait, not %d", n)
		}
		return ""
	})
	close(release)
	asking.Wait()
	if n := external.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}

	circle := startUpstream(t)
	_, server = serveWithTimeouts(t, 500*time.Millisecond, 200*time.Millisecond, circle.addr)
	circle.set(func(query []byte) ([]byte, bool) {
		go exchangePacket(server, query, false)
		return nil, true
	})
	if text := answerText(t, server, "www.example.com. A"); !strings.HasPrefix(text, "ServerFailure") || circle.asked.Load() > 5 {
		t.Errorf("asked %d times: %s", circle.asked.Load(), text)
	}
}

// TestTooManyWait: with too many queries in flight more are refused; those about the cluster are still answered.
func TestTooManyWait(t *testing.T) {
	silent := startUpstream(t)
	silent.silent()
	s, server := serveWith(t, nil, silent.addr)
	for range maxForwards {
		s.forward.slots <- struct{}{}
	}
	if text := answerText(t, server, "www.example.com. A"); !strings.HasPrefix(text, "Refused") {
		t.Error(text)
	}
	if text := answerText(t, server, "kubernetes.default.svc.cluster.local. A tcp"); !strings.HasPrefix(text, "Success") {
		t.Error(text)
	}
	if s.forward.counts.refused.Load() != 1 {
		t.Error("the refused query is not counted")
	}
}

func TestResolvConf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	self := netip.MustParseAddrPort("10.43.0.10:53")
	r := &resolvers{file: file, isSelf: func(a netip.AddrPort) bool { return a == self }}
	expect := func(want ...string) {
		t.Helper()
		now = now.Add(resolvConfCheckInterval)
		list, err := r.all(now)
		var got []string
		for _, a := range list {
			got = append(got, a.String())
		}
		if strings.Join(got, " ") != strings.Join(want, " ") || (err == nil) != (len(want) > 0) {
			t.Errorf("%v %v, not %v", got, err, want)
		}
	}
	expect()
	write("# comment\nsearch example.com\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 # with a remark\nnameserver nonsense\nnameserver\noptions ndots:5\n")
	expect("192.0.2.1:53", "[2001:db8::1]:53")
	write("nameserver 192.0.2.2")
	expect("192.0.2.2:53")
	write("nameserver 10.43.0.10\nnameserver 192.0.2.3")
	expect("192.0.2.3:53")
	write("nameserver 10.43.0.10")
	expect()
	write(strings.Repeat("nameserver 192.0.2.9\n", 50) + strings.Repeat("x", 2*maxConf))
	if list, _ := r.all(now.Add(resolvConfCheckInterval)); len(list) > maxResolvers {
		t.Errorf("%d servers", len(list))
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	now = now.Add(resolvConfCheckInterval)
	expect()
	// Between two checks the file is not read.
	write("nameserver 192.0.2.4")
	if _, err := r.all(now); err == nil {
		t.Error("the file was read before the next check was due")
	}
	expect("192.0.2.4:53")
}

// TestServersChange: the servers of resolv.conf are used, and new ones when the file changes; the kube-dns Service is never asked.
func TestServersChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	api := newCluster(t, "192.0.2.10")
	o := asNode(api)
	o.ResolvConf = file
	s := serve(t, o)
	list, err := s.forward.resolvers.all(time.Now())
	if err != nil || list[0] != netip.MustParseAddrPort("127.0.0.1:53") {
		t.Errorf("%v %v", list, err)
	}
	if err := os.WriteFile(file, []byte("nameserver 10.0.0.10\nnameserver 127.0.0.99\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err = s.forward.resolvers.all(time.Now().Add(resolvConfCheckInterval))
	if err != nil || list[0] != netip.MustParseAddrPort("127.0.0.99:53") {
		t.Errorf("%v %v", list, err)
	}
	if self := isSelf([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.10:53")}, s.zone); !self(netip.MustParseAddrPort("192.0.2.10:53")) || self(netip.MustParseAddrPort("192.0.2.11:53")) {
		t.Error("isSelf is wrong about a listen address")
	}
}
