package dns

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/test/seed"
)

// expectAnswer waits until the answer to a query has exactly the response code and the data.
func expectAnswer(t *testing.T, server netip.AddrPort, question, code string, data ...string) {
	t.Helper()
	eventually(t, func() string {
		lines := strings.Split(answerText(t, server, question), "\n")
		var got []string
		for _, line := range lines {
			if words := strings.Fields(line); words[0] == "answer" {
				got = append(got, strings.Join(words[3:], " "))
			}
		}
		if !strings.HasPrefix(lines[0], code) || strings.Join(got, ",") != strings.Join(data, ",") {
			return fmt.Sprintf("%s %v to %s; it is %s %v", code, data, question, lines[0], got)
		}
		return ""
	})
}

// TestAnswersFollow changes the cluster and expects the answers to change, including those that were packed before.
func TestAnswersFollow(t *testing.T) {
	api := apitest.Start(t)
	server := serve(t, asNode(api)).Addresses()[0]
	ctx, c := t.Context(), api.Client()
	const a, host, gone = "app.team.svc.cluster.local. A", "x.app.team.svc.cluster.local. A", "NameError"
	expectAnswer(t, server, "team.svc.cluster.local. A", gone)
	expectAnswer(t, server, a, gone)
	expectAnswer(t, server, "1-2-3-4.team.pod.cluster.local. A", gone)
	create(t, c, "kind: Namespace\nmetadata: {name: team}")
	expectAnswer(t, server, "team.svc.cluster.local. A", "Success")
	expectAnswer(t, server, "1-2-3-4.team.pod.cluster.local. A", "Success", "A 1.2.3.4")
	create(t, c, "kind: Service\nmetadata: {name: app, namespace: team}\nspec: {clusterIP: None, ports: [{name: http, port: 80}]}")
	expectAnswer(t, server, a, gone)
	create(t, c, "kind: EndpointSlice\nmetadata: {name: app-1, namespace: team, labels: {kubernetes.io/service-name: app}}\naddressType: IPv4\nports: [{name: http, port: 80}]\nendpoints: [{addresses: [10.42.0.1], hostname: x}]")
	expectAnswer(t, server, a, "Success", "A 10.42.0.1")
	expectAnswer(t, server, host, "Success", "A 10.42.0.1")
	expectAnswer(t, server, "1.0.42.10.in-addr.arpa. PTR", "Success", "PTR x.app.team.svc.cluster.local.")
	create(t, c, "kind: EndpointSlice\nmetadata: {name: app-2, namespace: team, labels: {kubernetes.io/service-name: app}}\naddressType: IPv4\nports: [{name: http, port: 80}]\nendpoints: [{addresses: [10.42.0.2]}, {addresses: [10.42.0.1], hostname: x}]")
	expectAnswer(t, server, a, "Success", "A 10.42.0.1", "A 10.42.0.2")
	expectAnswer(t, server, "_http._tcp.app.team.svc.cluster.local. SRV", "Success", "SRV 0 33 80 10-42-0-2.app.team.svc.cluster.local.", "SRV 0 33 80 x.app.team.svc.cluster.local.")

	slices := c.DiscoveryV1().EndpointSlices("team")
	if err := slices.Delete(ctx, "app-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectAnswer(t, server, "_http._tcp.app.team.svc.cluster.local. SRV", "Success", "SRV 0 50 80 10-42-0-2.app.team.svc.cluster.local.", "SRV 0 50 80 x.app.team.svc.cluster.local.")
	expectAnswer(t, server, "1.0.42.10.in-addr.arpa. PTR", "Success", "PTR x.app.team.svc.cluster.local.")
	slice, err := slices.Get(ctx, "app-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	no := false
	slice.Endpoints[1].Conditions.Ready = &no
	if slice, err = slices.Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectAnswer(t, server, a, "Success", "A 10.42.0.2")
	expectAnswer(t, server, host, gone)
	expectAnswer(t, server, "1.0.42.10.in-addr.arpa. PTR", "ServerFailure") // no longer an address of the cluster, and there is no upstream server
	slice.Labels[discoveryv1.LabelServiceName] = "other"
	if _, err = slices.Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectAnswer(t, server, a, gone)
	expectAnswer(t, server, "2.0.42.10.in-addr.arpa. PTR", "Success", "PTR 10-42-0-2.other.team.svc.cluster.local.")
	expectAnswer(t, server, "other.team.svc.cluster.local. A", gone)

	// From headless to a cluster IP and back, by way of an ExternalName.
	services := c.CoreV1().Services("team")
	for _, spec := range []struct {
		spec corev1.ServiceSpec
		want string
	}{
		{corev1.ServiceSpec{ClusterIP: "10.43.0.99", Ports: []corev1.ServicePort{{Port: 80}}}, "A 10.43.0.99"},
		{corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "1-2-3-4.team.pod.cluster.local"}, "CNAME 1-2-3-4.team.pod.cluster.local."},
		{corev1.ServiceSpec{ClusterIP: "10.43.0.98", Ports: []corev1.ServicePort{{Port: 80}}}, "A 10.43.0.98"},
	} {
		if err := services.Delete(ctx, "app", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expectAnswer(t, server, a, gone)
		if _, err := services.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: spec.spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if spec.spec.Type == corev1.ServiceTypeExternalName {
			expectAnswer(t, server, a, "Success", "A 1.2.3.4", spec.want)
		} else {
			expectAnswer(t, server, a, "Success", spec.want)
		}
	}
	expectAnswer(t, server, "98.0.43.10.in-addr.arpa. PTR", "Success", "PTR app.team.svc.cluster.local.")
	expectAnswer(t, server, "99.0.43.10.in-addr.arpa. PTR", "ServerFailure")
}

// TestNotReadyYet: until its informers have synced, the server does not answer NXDOMAIN.
func TestNotReadyYet(t *testing.T) {
	api := apitest.Start(t)
	c := api.Remote("dns", "system:node:n1", "system:nodes", "system:authenticated")
	api.Kill()
	free := netip.MustParseAddrPort(startUpstream(t).addr.String())
	s, err := New(Options{Client: c, Listen: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), free.Port())}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	server := s.options.Listen[0]
	packet, _ := packetOf(t, "kubernetes.default.svc.cluster.local. A")
	eventually(t, func() string {
		answer, err := exchangePacket(server, packet, true)
		if err != nil {
			return "an answer: " + err.Error()
		}
		if text := textOf(answer); !strings.HasPrefix(text, "ServerFailure") {
			t.Fatalf("answered before the informers synced: %s", text)
		}
		return ""
	})
	for _, question := range []string{"missing.default.svc.cluster.local. A", "1.0.43.10.in-addr.arpa. PTR", "cluster.local. SOA"} {
		if text := answerText(t, server, question); !strings.HasPrefix(text, "ServerFailure") {
			t.Errorf("%s: %s", question, text)
		}
	}
	if s.Addresses() != nil {
		t.Error("the server is ready before the informers synced")
	}
	api.Restart()
	expectAnswer(t, server, "kubernetes.default.svc.cluster.local. A", "Success", "A 10.43.0.1")
	expectAnswer(t, server, "missing.default.svc.cluster.local. A", "NameError")
	// When the API server stops, the last observed state is still answered.
	api.Kill()
	expectAnswer(t, server, "kubernetes.default.svc.cluster.local. A", "Success", "A 10.43.0.1")
	api.Restart()
}

// TestAnswersAreNeverStale changes endpoints at random, from a seed, under concurrent queries, and compares each answer after a change was observed.
func TestAnswersAreNeverStale(t *testing.T) {
	z := newZone([]byte("\x07cluster\x05local\x00"), 30, nil)
	z.synced.Store(true)
	s := &Server{zone: z, forward: newForwarder(&resolvers{}, nil)}
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}, Spec: corev1.ServiceSpec{ClusterIP: "None"}}
	z.serviceChanged(nil, service)
	packet, _ := packetOf(t, "s.n.svc.cluster.local. A edns=4096")
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() {
			q, m := &query{}, &counts{}
			for {
				select {
				case <-stop:
					return
				default:
					s.handle(q, packet, true, nil, m)
				}
			}
		})
	}
	var before *discoveryv1.EndpointSlice
	q, m := &query{}, &counts{}
	for range 3000 {
		after := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s-1", Labels: map[string]string{discoveryv1.LabelServiceName: "s"}}}
		n := random.IntN(5)
		for i := range n {
			after.Endpoints = append(after.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.0.%d", random.IntN(250), i)}})
		}
		z.sliceChanged(before, after)
		before = after
		msg, _ := s.handle(q, packet, true, nil, m)
		text := textOf(msg)
		for _, e := range after.Endpoints {
			if !strings.Contains(text, " A "+e.Addresses[0]) {
				t.Fatalf("%s is missing in\n%s", e.Addresses[0], text)
			}
		}
		if got := strings.Count(text, "\nanswer "); got != n {
			t.Fatalf("%d answers, not %d:\n%s", got, n, text)
		}
	}
	close(stop)
	asking.Wait()
	z.sliceChanged(before, nil)
	z.serviceChanged(service, nil)
	if len(z.entries)+len(z.endpoints)+len(z.clusterIPs) > 0 {
		t.Errorf("something is left: %v %v %v", z.entries, z.endpoints, z.clusterIPs)
	}
	for i := range z.packed {
		if p := &z.packed[i]; len(p.names) > 0 || p.bytes != 0 {
			t.Errorf("%d packed names of %d bytes are left", len(p.names), p.bytes)
		}
	}
}
