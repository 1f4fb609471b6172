// Package join makes a machine a node of a cluster that it knows nothing of but a URL and a token.
//
// The token carries the pin of the cluster's authority: the hash of its public key, so that it stays good when the authority's certificate is renewed.
// The machine fetches the authority's certificate over a connection that it does not trust, checks the pin, and from then on
// talks to nobody who cannot show a certificate of that authority; only then it shows its secret. With it it asks for a
// client certificate (a CertificateSigningRequest to kubernetes.io/kube-apiserver-client-kubelet), and, as the node that it is now, for one to serve with
// (kubernetes.io/kubelet-serving). Both are kept in files, so the machine comes back without the token, and are renewed under new keys when 70 to 90 % of
// their lives are over, so that nodes that joined together do not ask together. Those who use them always have the current ones.
package join
