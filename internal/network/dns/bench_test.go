package dns

import (
	"testing"
)

// BenchmarkHandle measures an answer about the cluster without the network.
func BenchmarkHandle(b *testing.B) {
	api := newCluster(b, "192.0.2.10")
	s := serve(b, asNode(api))
	for name, question := range map[string]string{
		"service": "web.shop.svc.cluster.local. A", "nodata": "web.shop.svc.cluster.local. AAAA", "missing": "www.example.com.shop.svc.cluster.local. A edns=1232",
		"headless": "many.shop.svc.cluster.local. A edns=4096", "srv": "_sql._tcp.db.shop.svc.cluster.local. SRV edns=4096",
	} {
		b.Run(name, func(b *testing.B) {
			packet, _ := packetOf(b, question)
			q, m, dst := &query{}, &counts{}, make([]byte, 0, maxUDPSize)
			b.ReportAllocs()
			for b.Loop() {
				if msg, _ := s.handle(q, packet, true, dst, m); msg == nil {
					b.Fatal("no answer")
				}
			}
		})
	}
}
