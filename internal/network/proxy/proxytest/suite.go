//go:build linux

package proxytest

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/network/proxy/model"
)

// Run runs the suite. All tests share one cluster and one instance of the mode, as Services of a node do.
func Run(t *testing.T, o Options) {
	w := NewCluster(t, o)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Cluster)
	}{
		{"ClusterIP", testClusterIP},
		{"Headless", testHeadless},
		{"Hairpin", testHairpin},
		{"Endpoints come and go", testEndpointsChange},
		{"No endpoints", testNoEndpoints},
		{"Not ready and terminating", testTerminating},
		{"NodePort", testNodePort},
		{"External IPs", testExternalIPs},
		{"Load balancer with source ranges", testSourceRanges},
		{"External traffic policy", testExternalPolicy},
		{"Internal traffic policy", testInternalPolicy},
		{"Session affinity", testAffinity},
		{"UDP flows", testUDPFlows},
		{"Connections stay", testConnectionsStay},
		{"Addresses taken twice", testTakenTwice},
		{"SCTP", testSCTP},
		{"Many", testMany},
		{"Wiped", testWiped},
		{"Churn", testChurn},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}

var protocols = []string{"tcp", "udp"}

func testClusterIP(t *testing.T, w *Cluster) {
	s := w.NewService(t, nil, "pod0", "pod1", "far")
	for _, f := range w.families() {
		client, masked := PodIP(2), []string{"10.42.0.1", "198.51.100.1", NodeIP}
		if f == model.IPv6 {
			client, masked = Pod6(2), []string{"fd42::1", "2001:db8:3::1", Node6}
		}
		for _, network := range protocols {
			w.ExpectsAll(t, w.Pods[2], network, s.At(f), "pod0", "pod1", "far")
			w.Expects(t, w.Pods[2], network, s.At(f), client, "pod0", "pod1", "far")
			w.ExpectsAll(t, w.Node, network, s.At(f), "pod0", "pod1", "far")
			w.Expects(t, w.Far, network, s.At(f), "", "pod0", "pod1", "far")
			// Traffic from outside through a route to the service range is masqueraded, as the answer must come back through the node.
			for range 10 {
				got := w.Expects(t, w.Outside, network, s.At(f), "", "pod0", "pod1", "far")
				if from := got.From.String(); from != masked[0] && from != masked[1] && from != masked[2] {
					t.Errorf("%s by %s sees %s, not the node", got.Who, network, from)
				}
			}
		}
	}
}

func testHeadless(t *testing.T, w *Cluster) {
	w.NewService(t, func(s *corev1.Service) {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	}, "pod0")
	w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	}, "pod0")
	if state, _ := w.Tracker.Take(); len(state.Ports) != 0 {
		t.Errorf("there is nothing to serve, but %v", state.Ports)
	}
}

// testHairpin: a pod that connects to itself through its Service must not see its own address as the source.
func testHairpin(t *testing.T, w *Cluster) {
	s := w.NewService(t, nil, "pod0")
	for _, f := range w.families() {
		for _, network := range protocols {
			got := w.Expects(t, w.Pods[0], network, s.At(f), "", "pod0")
			if from := got.From.String(); from == PodIP(0) || from == Pod6(0) {
				t.Errorf("by %s the pod sees itself at %s", network, from)
			}
		}
	}
}

func testEndpointsChange(t *testing.T, w *Cluster) {
	s := w.NewService(t, nil, "pod0")
	for _, step := range []string{"pod0 pod1", "pod0 pod1 pod2 far", "pod2 far", "pod1", "pod0 pod2 far"} {
		names := strings.Fields(step)
		s.SetEndpoints(t, names...)
		for _, f := range w.families() {
			w.ExpectsAll(t, w.Node, "tcp", s.At(f), names...)
			w.ExpectsAll(t, w.Pods[2], "udp", s.At(f), names...)
		}
	}
	before := s.At(model.IPv4)
	s.Update(t, func(s *corev1.Service) { // another address and another port
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.43.200.1", []string{"10.43.200.1", "fd43::200"}
		s.Spec.Ports[0].Port = 8081
	})
	w.ExpectsNothing(t, w.Pods[1], "tcp", before)
	w.Expects(t, w.Pods[1], "tcp", "10.43.200.1:8081", PodIP(1), "pod0", "pod2", "far")
	w.Expects(t, w.Pods[1], "udp", "10.43.200.1:80", PodIP(1), "pod0", "pod2", "far")
	s.Delete(t)
	w.ExpectsNothing(t, w.Pods[1], "tcp", "10.43.200.1:8081")
}

// testNoEndpoints: connections to a Service without endpoints are refused at once, at each of its addresses.
func testNoEndpoints(t *testing.T, w *Cluster) {
	external := "203.0.113.20"
	s := w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeNodePort, []string{external, "2001:db8:2::20"}
		s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30020, 30020
	}, "!pod0")
	for _, network := range protocols {
		for _, f := range w.families() {
			w.ExpectsRefusal(t, w.Pods[0], network, s.At(f))
			w.ExpectsRefusal(t, w.Node, network, s.At(f))
			w.ExpectsRefusal(t, w.Outside, network, s.At(f))
		}
		w.ExpectsRefusal(t, w.Outside, network, NodeIP+":30020")
		w.ExpectsRefusal(t, w.Pods[1], network, NodeIP+":30020")
		w.ExpectsRefusal(t, w.Outside, network, external+":80")
	}
	s.SetEndpoints(t, "pod0")
	for _, network := range protocols {
		w.Expects(t, w.Node, network, s.At(model.IPv4), "", "pod0")
		w.Expects(t, w.Outside, network, NodeIP+":30020", "", "pod0")
	}
	s.SetEndpoints(t)
	w.ExpectsRefusal(t, w.Pods[0], "tcp", s.At(model.IPv4))
}

func testTerminating(t *testing.T, w *Cluster) {
	s := w.NewService(t, nil, "pod0", "!pod1", "~pod2")
	w.ExpectsAll(t, w.Pods[1], "tcp", s.At(model.IPv4), "pod0")
	s.SetEndpoints(t, "!pod0", "!pod1", "~pod2", "~far") // terminating endpoints are used if there are no others
	w.ExpectsAll(t, w.Pods[1], "tcp", s.At(model.IPv4), "pod2", "far")
	s.Update(t, func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal) })
	w.ExpectsAll(t, w.Pods[1], "tcp", s.At(model.IPv4), "pod2")
}

func testInternalPolicy(t *testing.T, w *Cluster) {
	s := w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.InternalTrafficPolicy = corev1.ServiceTypeNodePort, ptr(corev1.ServiceInternalTrafficPolicyLocal)
		s.Spec.Ports[0].NodePort = 30091
	}, "pod0", "far")
	for _, network := range protocols {
		w.ExpectsAll(t, w.Pods[1], network, s.At(model.IPv4), "pod0")
		w.ExpectsAll(t, w.Node, network, s.At(model.IPv4), "pod0")
	}
	w.ExpectsAll(t, w.Outside, "tcp", NodeIP+":30091", "pod0", "far")
	s.SetEndpoints(t, "far")
	w.ExpectsSilence(t, w.Pods[1], "tcp", s.At(model.IPv4))
	w.Expects(t, w.Outside, "tcp", NodeIP+":30091", "", "far")
}

func testAffinity(t *testing.T, w *Cluster) {
	const short = 1
	s := w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.SessionAffinity = corev1.ServiceTypeNodePort, corev1.ServiceAffinityClientIP
		s.Spec.Ports[0].NodePort = 30100
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(600))}}
	}, "pod0", "pod1", "pod2", "far")
	clients := []*Host{w.Pods[0], w.Pods[1], w.Node}
	if !w.options.HidesClients {
		clients = append(clients, w.Outside)
	}
	for _, f := range w.families() {
		for _, network := range protocols {
			for _, client := range clients {
				first := w.Expects(t, client, network, s.At(f), "", "pod0", "pod1", "pod2", "far")
				for range 15 {
					w.Expects(t, client, network, s.At(f), "", first.Who)
				}
			}
		}
	}
	// A client gets the same endpoint through another address of the Service.
	first := w.Expects(t, w.Outside, "tcp", s.At(model.IPv4), "", "pod0", "pod1", "pod2", "far")
	for range 10 {
		w.Expects(t, w.Outside, "tcp", NodeIP+":30100", "", first.Who)
	}
	// When its endpoint is removed, a client gets another one, and keeps it.
	all := []string{"pod0", "pod1", "pod2", "far"}
	var left []string
	for _, name := range all {
		if name != first.Who {
			left = append(left, name)
		}
	}
	s.SetEndpoints(t, left...)
	second := w.Expects(t, w.Outside, "tcp", s.At(model.IPv4), "", left...)
	for range 15 {
		w.Expects(t, w.Outside, "tcp", s.At(model.IPv4), "", second.Who)
	}
	s.SetEndpoints(t, all...) // further endpoints do not change the affinity
	for range 15 {
		w.Expects(t, w.Outside, "tcp", s.At(model.IPv4), "", second.Who)
	}
	// The affinity ends when the client has not connected for the timeout.
	s.Update(t, func(s *corev1.Service) { s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = ptr(int32(short)) })
	before := map[*Host]string{}
	for _, client := range w.Pods {
		before[client] = w.Expects(t, client, "tcp", s.At(model.IPv4), "", all...).Who
	}
	for start, moved := time.Now(), false; !moved; {
		time.Sleep(short*time.Second + 200*time.Millisecond) // the timeout is what is tested
		for _, client := range w.Pods {
			got := w.Expects(t, client, "tcp", s.At(model.IPv4), "", all...)
			moved = moved || got.Who != before[client]
		}
		if time.Since(start) > time.Minute {
			t.Fatal("clients are never let go")
		}
	}
	s.Update(t, func(s *corev1.Service) {
		s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	})
	w.ExpectsAll(t, w.Pods[1], "tcp", s.At(model.IPv4), all...)
}

// testUDPFlows: a UDP client that keeps its source port gets a current endpoint.
func testUDPFlows(t *testing.T, w *Cluster) {
	s := w.NewService(t, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[1].NodePort = 30110
	})
	ask := func(p *Host, from, to, want string) {
		t.Helper()
		got, err := p.askFrom("udp", from, to, answerTimeout)
		if err != nil || got.Who != want {
			t.Errorf("%s asks %s: %v, %v, want %s", p.Name, to, got, err, want)
		}
	}
	if got, err := w.Pods[0].askFrom("udp", PodIP(0)+":4000", s.At(model.IPv4), dropTimeout); err == nil {
		t.Errorf("%v answered and is not there", got)
	}
	for _, name := range []string{"pod1", "pod2", "far"} {
		s.SetEndpoints(t, name)
		ask(w.Pods[0], PodIP(0)+":4000", s.At(model.IPv4), name)
		ask(w.Outside, OutsideIP+":4001", NodeIP+":30110", name)
		if !w.options.IPv4Only {
			ask(w.Pods[0], "["+Pod6(0)+"]:4000", s.At(model.IPv6), name)
		}
	}
}

// testConnectionsStay: connections to remaining endpoints go on when others change, when the proxy restarts, and while the endpoint terminates.
func testConnectionsStay(t *testing.T, w *Cluster) {
	s := w.NewService(t, nil, "pod0")
	conn, err := w.Pods[1].Dial("tcp", s.At(model.IPv4), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	goesOn := func(when string) {
		t.Helper()
		if got, err := AskOn(conn); err != nil || got.Who != "pod0" {
			t.Fatalf("%s: %v, %v", when, got, err)
		}
	}
	goesOn("at first")
	s.SetEndpoints(t, "pod0", "pod1", "far")
	goesOn("when others came")
	s.SetEndpoints(t, "~pod0", "pod1")
	goesOn("when it is about to go")
	w.ExpectsAll(t, w.Pods[1], "tcp", s.At(model.IPv4), "pod1")
	if !w.options.EndsOnClose {
		w.Restart(t)
		goesOn("after a restart")
	}
	w.ExpectsAll(t, w.Pods[1], "tcp", s.At(model.IPv4), "pod1")
}

// testTakenTwice: of two Services with the same external address one has it and, when it is deleted, the other.
func testTakenTwice(t *testing.T, w *Cluster) {
	same := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.30"} }
	first, second := w.NewService(t, same, "pod0"), w.NewService(t, same, "pod1")
	got := w.Expects(t, w.Outside, "tcp", "203.0.113.30:80", "", "pod0", "pod1")
	w.Expects(t, w.Pods[2], "tcp", first.At(model.IPv4), PodIP(2), "pod0")
	w.Expects(t, w.Pods[2], "tcp", second.At(model.IPv4), PodIP(2), "pod1")
	if got.Who == "pod0" {
		first.Delete(t)
		w.ExpectsAll(t, w.Outside, "tcp", "203.0.113.30:80", "pod1")
	} else {
		second.Delete(t)
		w.ExpectsAll(t, w.Outside, "tcp", "203.0.113.30:80", "pod0")
	}
}

// testSCTP: a Service with an SCTP port is accepted by kernels without SCTP.
func testSCTP(t *testing.T, w *Cluster) {
	s := w.NewService(t, func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "s", Protocol: corev1.ProtocolSCTP, Port: 80, NodePort: 30120})
	}, "pod0", "far")
	w.ExpectsAll(t, w.Pods[1], "tcp", s.At(model.IPv4), "pod0", "far")
}

// testMany: a few hundred Services in one sync.
func testMany(t *testing.T, w *Cluster) {
	var all []*Service
	sync := w.Mode
	w.Mode = pausedMode{sync}
	for i := range 300 {
		all = append(all, w.NewService(t, nil, []string{"pod0", "pod1", "far"}[i%3]))
	}
	w.Mode = sync
	w.Tracker.ResyncAll()
	w.Sync(t)
	for i := 0; i < len(all); i += 37 {
		w.Expects(t, w.Pods[2], "tcp", all[i].At(model.IPv4), PodIP(2), []string{"pod0", "pod1", "far"}[i%3])
		w.Expects(t, w.Node, "udp", all[i].At(model.IPv4), "", []string{"pod0", "pod1", "far"}[i%3])
	}
	all[41].SetEndpoints(t, "pod2")
	w.Expects(t, w.Pods[0], "tcp", all[41].At(model.IPv4), PodIP(0), "pod2")
	w.Mode = pausedMode{sync}
	t.Cleanup(func() { // after the Services are deleted
		w.Mode = sync
		w.Tracker.ResyncAll()
		w.Sync(t)
	})
	for _, s := range all {
		s.Delete(t)
	}
}

// testWiped: rules that somebody else removed are restored.
func testWiped(t *testing.T, w *Cluster) {
	s := w.NewService(t, nil, "pod0")
	if intact, err := w.Mode.Intact(t.Context()); err != nil || !intact {
		t.Errorf("intact: %v, %v", intact, err)
	}
	if err := w.options.Clean(); err != nil {
		t.Fatal(err)
	}
	w.ExpectsNothing(t, w.Pods[1], "tcp", s.At(model.IPv4))
	if intact, err := w.Mode.Intact(t.Context()); err != nil || intact {
		t.Errorf("intact though nothing is left: %v, %v", intact, err)
	}
	w.Tracker.ResyncAll()
	w.Sync(t)
	w.Expects(t, w.Pods[1], "tcp", s.At(model.IPv4), PodIP(1), "pod0")
	if err := errors.Join(w.options.Clean(), w.options.Clean()); err != nil { // cleaning twice is not an error
		t.Fatal(err)
	}
	w.Tracker.ResyncAll()
	w.Sync(t)
}
