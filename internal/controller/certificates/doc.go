// Package certificates has the loops that issue certificates for CertificateSigningRequests: one approves nodes' client certificates, one kubelets' serving
// certificates, one signs approved requests, one deletes requests that are no longer needed, and one records the keys of nodes.
//
// A request of a joining machine, made with a bootstrap token, is approved if RBAC allows its author to create certificatesigningrequests/nodeclient, the
// token has a use left, and no Node of that name exists or the Node records the machine's key. A node's renewal is approved by .../selfnodeclient. The key
// of the newest certificate is recorded in labels of the Node that the node itself cannot write. Kubelets' serving certificates, whose approval Kubernetes
// leaves to an administrator, are approved for the node's own name and for addresses that its Node has and no other.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package certificates
