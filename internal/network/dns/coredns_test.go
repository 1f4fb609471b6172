package dns

import (
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// With -coredns PROGRAM the test runs that CoreDNS on the same cluster and records what it answers. It must contain the plugins that are named below.
var coredns = flag.String("coredns", "", "record the answers of this CoreDNS program")

const recordedFile = "testdata/coredns.txt"

// TestAnswersAreCoreDNS asks the questions of testdata/queries.txt and compares the answers with those of CoreDNS, section by section.
func TestAnswersAreCoreDNS(t *testing.T) {
	external := startUpstream(t)
	api := newCluster(t, ownAddress(t))
	if *coredns != "" {
		recordAnswers(t, startCoreDNS(t, *coredns, api.Kubeconfig(), external.addr))
	}
	server := serve(t, asNode(api, external.addr)).Addresses()[0]
	recorded, err := os.ReadFile(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(string(recorded)), "\n\n") {
		question, want, _ := strings.Cut(part, "\n")
		if strings.HasPrefix(question, "#") {
			continue
		}
		if got := answerText(t, server, question); got != want && !alike(question, got, want) {
			t.Errorf("%s\nCoreDNS answers\n%s\nwe answer\n%s", question, want, got)
		}
		n++
	}
	if n < 200 {
		t.Errorf("only %d questions are recorded", n)
	}
}

// alike reports whether answers differ at most by design: CoreDNS spells forwarded names as they were first queried, skiff as in
// the question.
func alike(question, got, want string) bool {
	name, _, _ := strings.Cut(question, " ")
	return !strings.HasSuffix(strings.ToLower(name), ".cluster.local.") && strings.EqualFold(got, want)
}

func questions(t testing.TB) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/queries.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// ownAddress returns an address of this machine that is not loopback: CoreDNS reports it as its own.
func ownAddress(t testing.TB) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String()
		}
	}
	return "192.0.2.10" // only a recording needs a real one
}

func recordAnswers(t *testing.T, server netip.AddrPort) {
	var b strings.Builder
	b.WriteString("# What CoreDNS answers to the questions of queries.txt about the cluster of cluster.yaml, recorded with\n" +
		"# go test -run TestAnswersAreCoreDNS -coredns PROGRAM\n\n")
	for _, question := range questions(t) {
		fmt.Fprintf(&b, "%s\n%s\n\n", question, answerText(t, server, question))
	}
	if err := os.WriteFile(recordedFile, []byte(strings.TrimRight(b.String(), "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// startCoreDNS runs CoreDNS as kubeadm configures it, until the test ends.
func startCoreDNS(t testing.TB, program, kubeconfig string, upstream netip.AddrPort) netip.AddrPort {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := netip.MustParseAddrPort(free.Addr().String())
	free.Close()
	corefile := filepath.Join(t.TempDir(), "Corefile")
	text := fmt.Sprintf(`.:%d {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %s
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    forward . %s {
        max_concurrent 1000
    }
    cache 30 {
        disable success cluster.local
        disable denial cluster.local
    }
    loadbalance
}
`, server.Port(), kubeconfig, upstream)
	if err := os.WriteFile(corefile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-conf", corefile)
	cmd.Stderr, cmd.Stdout = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	packet, _ := packetOf(t, "kubernetes.default.svc.cluster.local. A")
	eventually(t, func() string {
		conn, err := net.Dial("udp", server.String())
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Second))
		conn.Write(packet)
		answer := make([]byte, 4096)
		if n, err := conn.Read(answer); err != nil || !strings.HasPrefix(textOf(answer[:n]), "Success") {
			return "an answer of CoreDNS"
		}
		return ""
	})
	return server
}
