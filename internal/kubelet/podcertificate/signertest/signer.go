package signertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Signer answers PodCertificateRequests when it is told to.
type Signer struct {
	testing.TB
	api   kubernetes.Interface
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey
	count int64
}

// New returns a signer with an authority of its own.
func New(t testing.TB, api kubernetes.Interface) *Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	return &Signer{TB: t, api: api, ca: ca, key: key}
}

// Issue issues certificates, for a day, to be renewed after half of it, for all requests that wait, and returns how many there were. The certificate's
// common name is that of the pod.
func (s *Signer) Issue() int {
	s.Helper()
	list, err := s.api.CertificatesV1().PodCertificateRequests("").List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	n := 0
	for _, r := range list.Items {
		if len(r.Status.Conditions) == 0 {
			s.issue(&r)
			n++
		}
	}
	return n
}

func (s *Signer) issue(r *certificatesv1.PodCertificateRequest) {
	s.Helper()
	parsed, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		s.Fatal(err)
	}
	s.count++
	from := time.Now().Truncate(time.Second)
	template := &x509.Certificate{SerialNumber: big.NewInt(1 + s.count), NotBefore: from, NotAfter: from.Add(24 * time.Hour), Subject: pkix.Name{CommonName: r.Spec.PodName}}
	der, err := x509.CreateCertificate(rand.Reader, template, s.ca, parsed.PublicKey, s.key)
	if err != nil {
		s.Fatal(err)
	}
	r.Status = certificatesv1.PodCertificateRequestStatus{CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore: new(metav1.NewTime(template.NotBefore)), NotAfter: new(metav1.NewTime(template.NotAfter)), BeginRefreshAt: new(metav1.NewTime(from.Add(12 * time.Hour)))}
	s.conclude(r, certificatesv1.PodCertificateRequestConditionTypeIssued)
}

// Deny denies all requests that wait.
func (s *Signer) Deny() {
	s.Helper()
	list, err := s.api.CertificatesV1().PodCertificateRequests("").List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, r := range list.Items {
		if len(r.Status.Conditions) == 0 {
			s.conclude(&r, certificatesv1.PodCertificateRequestConditionTypeDenied)
		}
	}
}

func (s *Signer) conclude(r *certificatesv1.PodCertificateRequest, as string) {
	s.Helper()
	r.Status.Conditions = []metav1.Condition{{Type: as, Status: metav1.ConditionTrue, Reason: "Test", Message: "says the test", LastTransitionTime: metav1.Now()}}
	if _, err := s.api.CertificatesV1().PodCertificateRequests(r.Namespace).UpdateStatus(s.Context(), r, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}
