// Package flowcontrol declares the resources of the group flowcontrol.apiserver.k8s.io, with which an API server divides its
// capacity among its clients: priority levels, each with a share of the server, and flow schemas, which assign requests to
// levels.
//
// Mandatory and Suggested return the levels and schemas that a cluster starts with.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package flowcontrol
