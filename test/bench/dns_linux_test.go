package bench

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/network/dns"
)

// Benchmarks of the DNS server beside CoreDNS: see dns.sh.
var (
	dnsCoreDNS  = flag.String("coredns", "", "the CoreDNS program to compare with; none if empty")
	dnsServices = flag.Int("dns-services", 1000, "how many Services the cluster has; one in ten is headless with ten endpoints, the others have ten endpoints too")
	dnsSeconds  = flag.Float64("dns-seconds", 5, "for how long each is asked")
)

// dnsServer is the environment variable that makes this program a DNS server; its value is a kubeconfig and an address to listen on.
const dnsServer = "SKIFF_BENCH_DNS_SERVER"

func TestMain(m *testing.M) {
	config, listen, ok := strings.Cut(os.Getenv(dnsServer), " ")
	if !ok {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := client.ForKubeconfig(config, "dns")
	if err == nil {
		var s *dns.Server
		if s, err = dns.New(dns.Options{Client: c, Listen: []netip.AddrPort{netip.MustParseAddrPort(listen)}}); err == nil {
			err = s.Run(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// BenchmarkDNS queries DNS servers, each a process of its own, for the names that pods query: an existing Service by its full name, both
// families; one that is found at the second entry of the search path; a headless one; an external name with the cluster's suffixes.
// Queries per second and core are queries divided by the server's CPU time.
func BenchmarkDNS(b *testing.B) {
	api := apitest.Start(b, apitest.WithoutGuard())
	questions := dnsCluster(b, api)
	programs := map[string]func(listen netip.AddrPort) *exec.Cmd{
		"skiff": func(listen netip.AddrPort) *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), dnsServer+"="+api.Kubeconfig()+" "+listen.String())
			return cmd
		},
	}
	names := []string{"skiff"}
	if *dnsCoreDNS != "" {
		names = []string{"coredns", "skiff"}
		programs["coredns"] = func(listen netip.AddrPort) *exec.Cmd {
			file := filepath.Join(b.TempDir(), "Corefile")
			text := fmt.Sprintf(".:%d {\n bind 127.0.0.1\n errors\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n kubeconfig %s\n pods insecure\n"+
				" fallthrough in-addr.arpa ip6.arpa\n ttl 30\n }\n prometheus 127.0.0.1:0\n forward . 192.0.2.53 {\n max_concurrent 1000\n }\n"+
				" cache 30 {\n disable success cluster.local\n disable denial cluster.local\n }\n loadbalance\n}\n", listen.Port(), api.Kubeconfig())
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
			return exec.Command(*dnsCoreDNS, "-conf", file)
		}
	}
	for _, name := range names {
		b.Run(name, func(b *testing.B) { dnsLoad(b, programs[name], questions) })
	}
}

// dnsCluster creates Services and returns query packets for them.
func dnsCluster(b *testing.B, api *apitest.Server) [][]byte {
	ctx, c := b.Context(), api.Client()
	var wg sync.WaitGroup
	places := make(chan struct{}, 16)
	for i := range *dnsServices {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			name := fmt.Sprintf("service-%d", i)
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
			if i%10 == 0 {
				s.Spec.ClusterIP = corev1.ClusterIPNone
			}
			if _, err := c.CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{}); err != nil {
				b.Error(err)
			}
			port, http, ready := int32(80), "http", true
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
				AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &http, Port: &port}}}
			for e := range 10 {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 100+i/250, i%250, e+1)},
					Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
			}
			if _, err := c.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{}); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	const types = "\x00\x01\x00\x1c" // A and AAAA
	var packets [][]byte
	for i := range *dnsServices {
		for _, form := range []string{"service-%d.default.svc.cluster.local", "service-%d.default.default.svc.cluster.local", "service-%d.example.com.svc.cluster.local"} {
			for t := 0; t < len(types); t += 2 {
				packet := []byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
				for label := range strings.SplitSeq(fmt.Sprintf(form, i), ".") {
					packet = append(append(packet, byte(len(label))), label...)
				}
				packets = append(packets, append(append(packet, 0), types[t], types[t+1], 0, 1))
			}
		}
	}
	rand.Shuffle(len(packets), func(i, j int) { packets[i], packets[j] = packets[j], packets[i] })
	return packets
}

// dnsLoad sends queries from several sockets, each with a window of inflight queries.
func dnsLoad(b *testing.B, program func(netip.AddrPort) *exec.Cmd, questions [][]byte) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := netip.MustParseAddrPort(free.Addr().String())
	free.Close()
	cmd := program(server)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("udp", server.String())
		if err != nil {
			b.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Second))
		conn.Write(questions[0])
		answer := make([]byte, 4096)
		n, err := conn.Read(answer)
		conn.Close()
		if err == nil && n > 12 && answer[3]&0xF != 2 {
			break
		}
		if time.Now().After(deadline) {
			b.Fatal("the server does not answer")
		}
	}
	const sockets, window = 4, 32
	var answered, lost, wrong atomic.Int64
	run := func(d time.Duration) {
		var wg sync.WaitGroup
		end := time.Now().Add(d)
		for s := range sockets {
			wg.Go(func() {
				conn, err := net.Dial("udp", server.String())
				if err != nil {
					b.Error(err)
					return
				}
				defer conn.Close()
				next, packet, answer := s*len(questions)/sockets, make([]byte, 512), make([]byte, 4096)
				send := func() {
					n := copy(packet, questions[next%len(questions)])
					binary.BigEndian.PutUint16(packet, uint16(next))
					next++
					conn.Write(packet[:n])
				}
				for range window {
					send()
				}
				for time.Now().Before(end) {
					conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
					n, err := conn.Read(answer)
					if err != nil { // packets of the window were dropped
						lost.Add(window)
						for range window {
							send()
						}
						continue
					}
					if code := answer[3] & 0xF; n < 12 || code != 0 && code != 3 {
						wrong.Add(1)
					}
					answered.Add(1)
					send()
				}
			})
		}
		wg.Wait()
	}
	run(time.Second) // warms the caches up
	answered.Store(0)
	lost.Store(0)
	for range b.N {
		before, begin := cpuSeconds(b, cmd.Process.Pid), time.Now()
		run(time.Duration(*dnsSeconds * float64(time.Second)))
		took, cpu := time.Since(begin).Seconds(), cpuSeconds(b, cmd.Process.Pid)-before
		b.ReportMetric(float64(answered.Load())/took, "queries/s")
		b.ReportMetric(float64(answered.Load())/cpu, "queries/s/core")
		b.ReportMetric(cpu/float64(answered.Load())*1e6, "us-cpu/query")
		b.ReportMetric(memoryMB(b, cmd.Process.Pid, "VmRSS:"), "MB")
		b.ReportMetric(memoryMB(b, cmd.Process.Pid, "RssAnon:"), "MB-anonymous")
		b.ReportMetric(float64(lost.Load()), "lost")
		if wrong.Load() > 0 {
			b.Errorf("%d answers are wrong", wrong.Load())
		}
	}
}

// cpuSeconds returns the CPU time of a process.
func cpuSeconds(b *testing.B, pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	const ticks = 100
	return (user + system) / ticks
}

func memoryMB(b *testing.B, pid int, kind string) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, kind); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1000
		}
	}
	return 0
}
