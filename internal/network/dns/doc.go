// Package dns is the cluster's DNS server. Every node runs one, in skiff's own process, behind the address of the kube-dns Service: it
// answers the names of the Kubernetes DNS specification 1.1.0 from the Services, EndpointSlices and Namespaces that informers hold, and
// forwards everything else to the resolvers of the node's resolv.conf. Only pods and the node itself are answered (sources.go).
//
// The behaviour is that of CoreDNS with the configuration that kubeadm gives it, including which names do not exist (NXDOMAIN) and which
// exist without such records (NODATA); testdata/coredns.txt records CoreDNS's answers about a cluster, and the tests compare. The
// implementation differs: an answer is packed once, as the bytes that go on the wire, kept until one of the objects it was made from
// changes, and copied behind the question that a client asks. Packets are read and written in batches, on one socket per processor.
//
// A query passes through the files in this order: udp_linux.go and tcp.go receive it, query.go parses it, handle.go decides which zone it
// belongs to, lookup.go finds a name of the cluster in zone.go, pack.go packs its answer, answer.go writes it. Other names are forwarded by
// forward.go to the servers that resolvconf.go lists, and cache.go caches their responses.
//
// It must not import the API server, its store or its cache, nor another component: components meet only at the API, through client.
package dns
