// Package core declares the core group (v1): nodes, namespaces, services, secrets and the rest of what Kubernetes has
// had from its start. Pods and persistent volumes are large enough for packages of their own (catalog/pod,
// catalog/volume), but are listed here with the others.
//
// The allocation of cluster IPs and node ports needs memory and stays with the server; what can be decided without is
// here: see PrepareAllocation.
package core
