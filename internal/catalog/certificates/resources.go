package certificates

import "skiff/internal/catalog"

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{CertificateSigningRequest, ClusterTrustBundle, PodCertificateRequest}
}

const (
	group       = "certificates.k8s.io"
	certificate = "CERTIFICATE" // the type of a PEM block
)
