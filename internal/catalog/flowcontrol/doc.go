// Package flowcontrol declares the resources of the group flowcontrol.apiserver.k8s.io, with which an API server shares
// itself out among its clients: priority levels, each with a share of the server, and flow schemas, which say which
// requests belong to which level.
//
// Mandatory and Suggested return the levels and schemas that a cluster starts with.
package flowcontrol
