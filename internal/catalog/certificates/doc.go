// Package certificates declares requests for certificates (by anyone, and by a kubelet for a pod) and bundles of trust
// anchors. Who may approve or sign a request is for admission to say.
package certificates
