// Package apiserver puts an API server together and runs what stands beside its requests. What serves them is in its rooms, which a request crosses in
// this order:
//
//	front         the HTTP front: filters, authentication, flow control, authorization
//	request       what the path, the method and the parameters of a request say
//	nonresource   paths that are no resource's: discovery, health, metrics, version
//	verbs         get, list, watch, create, update, patch, apply, delete and scale, the same for all resources
//	subresources  what no generic verb serves: log, exec, proxy, eviction, binding, reviews, tokens
//	admission     the plugins that change or refuse a write, and guards, the checks of who may write
//	registry      objects of one resource in cache and store
//	encryption    what is stored encrypted, and how
//	crd           the loop that has the resources of CustomResourceDefinitions served
//	response      encodings, tables, watch streams, WebSockets, Statuses
//
// Imports point the same way: the assembly here imports all of them; front imports nonresource and verbs; nonresource, subresources, guards and
// inprocess import verbs; verbs imports response; response imports request and registry. None imports back.
//
// This package has the assembly (server.go, identity.go, hooks.go), the objects that every cluster has (bootstrap.go), the server's own access to what
// it stores (loopback.go), what is served and how discovery and OpenAPI learn of it (served.go, publish.go), and the loops that run beside requests (servicecidr.go, clusterauthtrust.go, storageusage.go, typechecking.go). Everything about resources
// comes from the catalog.
//
// It must not import components (controllers, scheduler, kubelet, network, dashboard) or the cluster that runs it: those reach it through client.
package apiserver
