package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"skiff/internal/images"
	"skiff/internal/images/access"
)

// What a node listens on is what its pods cannot have, and no more than that.
func TestReservedPorts(t *testing.T) {
	dir := t.TempDir()
	store, err := images.Open(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	registry, err := access.Serve(access.Options{Dir: filepath.Join(dir, "registry"), Address: "127.0.0.1:0", Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { registry.Close(context.Background()) })
	s := &Server{config: Config{BindAddress: "0.0.0.0", Port: 6443, EtcdListen: "https://127.0.0.1:2379", Node: NodeConfig{Port: 10250}}}
	n := &node{options: s.nodeOptions(), nodeIPs: []string{"192.0.2.1", "2001:db8::1"}, registry: registry}
	check := func(a nodeAccess, want ...string) {
		t.Helper()
		reserved, err := n.reservedPorts(a)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range reserved {
			got = append(got, fmt.Sprintf("%s %v %d: %s", r.Protocol, r.IP, r.Port, r.Use))
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("reserved are\n%q, want\n%q", got, want)
		}
	}
	own := []string{"TCP 0.0.0.0 6443: the API server", "TCP 127.0.0.1 2379: etcd", "TCP invalid IP 10250: the kubelet",
		fmt.Sprintf("TCP 127.0.0.1 %s: the image registry", registry.Address()[len("127.0.0.1:"):])}
	check(nodeAccess{Network: NetworkConfig{Disable: NodeParts}}, own...)
	check(nodeAccess{Network: NetworkConfig{Overlay: "host-gw", Disable: []string{PartProxy, PartDNS}}}, own...)
	check(nodeAccess{}, append(own, "TCP invalid IP 10256: the service proxy's health server", "TCP 127.0.0.1 10249: the service proxy's metrics server",
		"TCP 192.0.2.1 10053: the name server", "UDP 192.0.2.1 10053: the name server", "TCP 2001:db8::1 10053: the name server", "UDP 2001:db8::1 10053: the name server",
		"UDP invalid IP 8472: the overlay network")...)
}
