package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestIssued covers what depends on the current time, which no recorded story can.
func TestIssued(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	type change func(leaf *x509.Certificate, s *certificatesv1.PodCertificateRequestStatus)
	issue := func(change change) *certificatesv1.PodCertificateRequest {
		leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(2 * time.Hour)}
		r := &certificatesv1.PodCertificateRequest{}
		life := int32(day)
		r.Spec.MaxExpirationSeconds, r.Spec.StubPKCS10Request = &life, stub
		r.Status.Conditions = []metav1.Condition{{Type: "Issued", Status: "True", Reason: "R", LastTransitionTime: metav1.NewTime(now)}}
		r.Status.BeginRefreshAt = &metav1.Time{Time: now.Add(time.Hour)}
		change(leaf, &r.Status)
		der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status.NotBefore == nil {
			r.Status.NotBefore = &metav1.Time{Time: leaf.NotBefore}
		}
		if r.Status.NotAfter == nil {
			r.Status.NotAfter = &metav1.Time{Time: leaf.NotAfter}
		}
		r.Status.CertificateChain = string(pem.EncodeToMemory(&pem.Block{Type: certificate, Bytes: der})) + r.Status.CertificateChain
		return r
	}
	for _, test := range []struct {
		name   string
		change change
		want   string
	}{
		{"nothing wrong", func(*x509.Certificate, *certificatesv1.PodCertificateRequestStatus) {}, ""},
		{"too early", func(leaf *x509.Certificate, _ *certificatesv1.PodCertificateRequestStatus) {
			leaf.NotBefore = now.Add(-5 * time.Minute)
		}, "must be set to within 5 minutes of kube-apiserver's current time"},
		{"another beginning", func(_ *x509.Certificate, s *certificatesv1.PodCertificateRequestStatus) {
			s.NotBefore = &metav1.Time{Time: now.Add(time.Second)}
		}, "must be set to the NotBefore time encoded in the leaf certificate"},
		{"another end", func(_ *x509.Certificate, s *certificatesv1.PodCertificateRequestStatus) {
			s.NotAfter = &metav1.Time{Time: now}
		}, "must be set to the NotAfter time encoded in the leaf certificate"},
		{"short", func(leaf *x509.Certificate, _ *certificatesv1.PodCertificateRequestStatus) {
			leaf.NotAfter = now.Add(59 * time.Minute)
		}, "3540000000000: leaf certificate lifetime must be >= 1 hour"},
		{"long", func(leaf *x509.Certificate, _ *certificatesv1.PodCertificateRequestStatus) {
			leaf.NotAfter = now.Add(25 * time.Hour)
		}, "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"},
		{"refreshed early", func(_ *x509.Certificate, s *certificatesv1.PodCertificateRequestStatus) {
			s.BeginRefreshAt = &metav1.Time{Time: now.Add(9 * time.Minute)}
		}, "must be at least 10 minutes after status.notBefore"},
		{"refreshed late", func(_ *x509.Certificate, s *certificatesv1.PodCertificateRequestStatus) {
			s.BeginRefreshAt = &metav1.Time{Time: now.Add(111 * time.Minute)}
		}, "must be at least 10 minutes before status.notAfter"},
		{"bad company", func(_ *x509.Certificate, s *certificatesv1.PodCertificateRequestStatus) {
			s.CertificateChain = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"
		}, "intermediate certificate does not parse as valid X.509"},
		{"bad names", func(leaf *x509.Certificate, _ *certificatesv1.PodCertificateRequestStatus) {
			leaf.DNSNames = []string{"a..b", ".c"}
			leaf.EmailAddresses = []string{"nobody"}
		}, "leaf certificate's DNSName should not contain '..'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			new := issue(test.change)
			errs := validatePodCertificateStatus(new, &certificatesv1.PodCertificateRequest{Spec: new.Spec}, now)
			got := ""
			if err := errs.ToAggregate(); err != nil {
				got = err.Error()
			}
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
