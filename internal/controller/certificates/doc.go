// Package certificates has the loops that make certificates of CertificateSigningRequests: one approves the client certificates that nodes ask for, one what kubelets
// serve with, one signs what is approved, one removes requests that nobody waits for any more, and one records the keys of nodes.
//
// A request of a machine that joins, made with a bootstrap token, is approved if RBAC lets its author create certificatesigningrequests/nodeclient, the token has
// a use left, and no Node of that name exists or the Node records the machine's key. A node's renewal is approved by .../selfnodeclient. The key of the newest
// certificate is recorded in labels of the Node that the node itself cannot write. What kubelets serve with, which Kubernetes leaves to an administrator, is
// approved for the node's own name and for addresses that its Node has and nobody else does.
package certificates
