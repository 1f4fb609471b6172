package dns

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skiff/internal/network/networktest"
)

// TestPodsResolve has a pod, in a network namespace of its own, ask the name server of its node, in another: with packets, and with the resolver of
// the C library, which searches the pod's domains as its resolv.conf says.
func TestPodsResolve(t *testing.T) {
	const nodeIP, podIP = "192.0.2.1", "192.0.2.2"
	node, pod := networktest.New(t, "node"), networktest.New(t, "pod")
	networktest.Link(t, node, pod, "veth0", "eth0", 0)
	node.Up(t, "veth0", nodeIP+"/24")
	pod.Up(t, "eth0", podIP+"/24")
	elsewhere := startUpstream(t)
	o := asNode(newCluster(t, nodeIP), elsewhere.addr)
	server := netip.MustParseAddrPort(nodeIP + ":53") // where the C library looks
	o.Listen = []netip.AddrPort{server}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := node.Do(func() error { return s.Run(ctx) }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for question, want := range map[string]string{
		"web.shop.svc.cluster.local. A": " A 10.0.0.20", "web.shop.svc.cluster.local. A tcp": " A 10.0.0.20", "www.example.com. A": " A 192.0.2.80", "missing.shop.svc.cluster.local. A": "NameError",
		"20.0.0.10.in-addr.arpa. PTR": "PTR web.shop.svc.cluster.local.",
	} {
		packet, tcp := packetOf(t, question)
		var answer []byte
		if err := pod.Do(func() (err error) { answer, err = exchangePacket(server, packet, tcp); return err }); err != nil || !strings.Contains(textOf(answer), want) {
			t.Errorf("%s: %v %s", question, err, textOf(answer))
		}
	}

	conf := filepath.Join(t.TempDir(), "resolv.conf")
	text := "nameserver " + nodeIP + "\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	getent := func(database, name string) string {
		cmd := exec.Command("sh", "-c", `mount --make-rprivate / && mount --bind "$1" /etc/resolv.conf && exec getent "$2" "$3"`, "sh", conf, database, name)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		var out []byte
		err := pod.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
		var addresses []string
		for line := range strings.Lines(string(out)) {
			if words := strings.Fields(line); database == "hosts" && len(words) > 1 {
				addresses = append(addresses, words[1])
			} else if len(words) > 0 && !slices.Contains(addresses, words[0]) {
				addresses = append(addresses, words[0])
			}
		}
		slices.Sort(addresses)
		if err != nil {
			return fmt.Sprintf("%v %s", err, out)
		}
		return strings.Join(addresses, " ")
	}
	for _, c := range []struct{ database, name, want string }{
		{"ahostsv4", "web", "10.0.0.20"}, {"ahostsv4", "web.shop", "10.0.0.20"}, {"ahostsv4", "kubernetes.default", "10.0.0.1"}, {"ahostsv4", "web.shop.svc.cluster.local", "10.0.0.20"},
		{"ahostsv4", "db-0.db", "10.42.0.6"}, {"ahostsv4", "db", "10.42.0.6 10.42.1.6 10.42.3.6"}, {"ahostsv4", "outside", "192.0.2.80"}, {"ahostsv4", "www.example.com", "192.0.2.80"},
		{"ahostsv4", "1-2-3-4.shop.pod", "1.2.3.4"}, {"hosts", "10.0.0.20", "web.shop.svc.cluster.local"}, {"ahostsv4", "missing", "exit status 2 "},
	} {
		if got := getent(c.database, c.name); got != c.want {
			t.Errorf("getent %s %s: %q, not %q", c.database, c.name, got, c.want)
		}
	}
	if many := len(strings.Fields(getent("ahostsv4", "many"))); many != 32 { // which takes TCP
		t.Errorf("%d addresses of many", many)
	}
}
