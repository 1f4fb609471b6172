// Package aggregation has group versions of the API served by other servers, as their APIServices say, and keeps the APIServices of what this server
// serves itself. It is what upstream calls kube-aggregator.
//
//	proxy.go      sends requests to the server of their group version, as the user who sent them
//	backend.go    the connections to one server: endpoints of its Service, TLS, the client certificate of the front proxy
//	available.go  the condition Available
//	discovery.go  what a server says that it serves, which stays known while it is down
//	documents.go  the OpenAPI documents of a server
//	local.go      the APIServices of built-in group versions and of those of definitions
//
// Without an APIService that names a Service, nothing runs but the loop that keeps the local ones, and a request costs the read of one pointer.
//
// What differs from upstream: requests go to endpoints of the Service, also through the tunnels of agents, and never to its cluster IP. A connection that is
// refused is tried at other endpoints. Discovery answers at once from what is known, and what a server said last stays in the aggregated document, with
// freshness Stale, while the server is down. OpenAPI documents are fetched when somebody asks for them. A request does not hold a seat of this server's flow
// control while another server works on it; maxInFlight bounds such requests instead.
//
// It must not import the API server's root package, front, verbs or its cache: the root package implements Host.
package aggregation
