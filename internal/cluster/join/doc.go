// Package join makes a machine a node of a cluster, of which it has only the URL and a token.
//
// The token carries a pin: the hash of the public key of the cluster's authority, which stays valid when the authority's certificate is renewed. The machine
// fetches the authority's certificate over a connection that it does not trust, checks the pin, and from then on connects only to servers with a
// certificate of that authority; only then it sends the token's secret. With it it requests a client certificate (a CertificateSigningRequest to
// kubernetes.io/kube-apiserver-client-kubelet) and then, as the node, a serving certificate (kubernetes.io/kubelet-serving). Both are kept in files, so that the
// machine can start again without the token. They are renewed with new keys after 70 to 90 % of their lifetimes, so that nodes that joined together do not
// all renew at once. Identity always has the current ones.
//
// It must not import the API server, its store or its cache: a node reaches them through the API.
package join
