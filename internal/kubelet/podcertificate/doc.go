// Package podcertificate keeps the certificates that projected volumes of pods show, and renews them.
//
// For each source podCertificate of a volume the kubelet generates a key, which never leaves the node, and creates a PodCertificateRequest; a
// signer, which is none of the cluster's own parts, answers it in the status. The certificate is renewed when the signer says so, with a new key; as long
// as the new one is not there, the volume shows the old one. What a signer denies or fails is final for the pod.
//
// The state of a certificate (state.go) is a pure state machine: what was observed in, what to do out. It is driven by those who set up volumes, once a minute
// for a pod that runs, and when a request of the pod changes. Nothing is kept on the disk: a kubelet that starts anew asks for new certificates. A node whose
// pods have no such volumes watches nothing.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package podcertificate
