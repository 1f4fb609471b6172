package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

// How long requests are kept after they were decided, and while they are pending.
const (
	keepDecided = time.Hour
	keepPending = 24 * time.Hour
)

// NewCleaner returns the loop that deletes requests that are no longer needed. Its keys are CertificateSigningRequests.
func NewCleaner(deps controller.Deps) controller.Loop {
	requests := deps.Informers.Certificates().V1().CertificateSigningRequests()
	return overRequests(requests, controller.Loop{Name: "certificatesigningrequest-cleaner-controller", ServiceAccount: account, Workers: 1}, clean)
}

func clean(csr *certificatesv1.CertificateSigningRequest, now time.Time) controller.Decision {
	if left := expiry(csr).Sub(now); left > 0 {
		return controller.Decision{RequeueAfter: left}
	}
	return controller.Decision{Actions: []controller.Action{controller.Delete(csr, metav1.DeleteOptions{})}}
}

// expiry returns when a request is deleted.
func expiry(csr *certificatesv1.CertificateSigningRequest) time.Time {
	if len(csr.Status.Conditions) == 0 {
		return csr.CreationTimestamp.Add(keepPending)
	}
	var at time.Time
	atMost := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, c := range csr.Status.Conditions {
		since := c.LastUpdateTime
		if since.IsZero() {
			since = csr.CreationTimestamp
		}
		if c.Type == certificatesv1.CertificateApproved && len(csr.Status.Certificate) == 0 {
			atMost(since.Add(keepPending)) // it may be signed yet
		} else {
			atMost(since.Add(keepDecided))
		}
	}
	if block, _ := pem.Decode(csr.Status.Certificate); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			atMost(cert.NotAfter)
		}
	}
	return at
}
