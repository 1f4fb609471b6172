// Package dns is the cluster's name server. Every node runs one, in skiff's own process, behind the address of the kube-dns Service: it
// answers the names of the Kubernetes DNS specification 1.1.0 from the Services, EndpointSlices and Namespaces that informers hold, and asks
// the resolvers of the node's resolv.conf for everything else.
//
// The behaviour is that of CoreDNS with the configuration that kubeadm gives it, down to which names do not exist and which only have
// no such records; testdata/coredns.txt is what CoreDNS says about a cluster, and the tests compare. What differs is the way: an answer is packed once,
// as the bytes that go on the wire, kept until one of the objects it was made from changes, and copied behind the
// question that a client asks. Packets are read and written many at a time, on one socket per processor.
//
// In the order in which a query passes through: udp_linux.go and tcp.go receive it, query.go reads it, handle.go decides whose it is, lookup.go
// finds what a name of the cluster means in zone.go, pack.go packs its answer, answer.go writes it; forward.go asks others, resolvconf.go
// says whom, cache.go remembers what they said.
package dns
