// Package certificates has the loops that make certificates of CertificateSigningRequests: one approves what nodes ask for, one signs what is
// approved, one removes requests that nobody waits for any more.
//
// A request of a machine that joins, made with a bootstrap token, is approved if RBAC lets its author create
// certificatesigningrequests/nodeclient, unless the name is that of a node that is well: then it is another machine's. A node's renewal
// is approved by .../selfnodeclient. What kubelets serve with, which Kubernetes leaves to an administrator, is approved if all names and addresses are the
// node's own.
package certificates
