package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Requests are kept for a day while they are pending or not signed, and for an hour after, but not longer than their certificate is valid.
func TestWhenRequestsGo(t *testing.T) {
	made := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	decided := made.Add(30 * time.Minute)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(until time.Time) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: made, NotAfter: until}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	for what, c := range map[string]struct {
		conditions  []certificatesv1.RequestConditionType
		certificate []byte
		want        time.Time
	}{
		"pending":          {nil, nil, made.Add(24 * time.Hour)},
		"denied":           {[]certificatesv1.RequestConditionType{certificatesv1.CertificateDenied}, nil, decided.Add(time.Hour)},
		"approved":         {[]certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}, nil, decided.Add(24 * time.Hour)},
		"failed":           {[]certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateFailed}, nil, decided.Add(time.Hour)},
		"issued":           {[]certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}, certificate(made.Add(1000 * time.Hour)), decided.Add(time.Hour)},
		"issued and ended": {[]certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}, certificate(made.Add(time.Hour)), made.Add(time.Hour)},
	} {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
		for _, kind := range c.conditions {
			csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, LastUpdateTime: metav1.NewTime(decided)})
		}
		csr.Status.Certificate = c.certificate
		if got := expiry(csr); !got.Equal(c.want) {
			t.Errorf("%s: goes at %v, want %v", what, got, c.want)
		}
	}
}

// Certificates are valid from a little before they are signed, for clocks that are behind, and end after the signer's duration or when asked for.
func TestTerm(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		most         time.Duration
		seconds      *int32
		before, life time.Duration
	}{
		{24 * time.Hour, nil, 5 * time.Minute, 24*time.Hour - 5*time.Minute},
		{24 * time.Hour, new(int32(3600)), 5 * time.Minute, time.Hour},
		{24 * time.Hour, new(int32(60)), time.Minute, 10 * time.Minute},
		{24 * time.Hour, new(int32(1 << 30)), 5 * time.Minute, 24*time.Hour - 5*time.Minute},
		{10 * time.Second, new(int32(3600)), time.Second, 10 * time.Second},
	} {
		from, to := (&signer{life: c.most}).validity(c.seconds, now)
		if now.Sub(from) != c.before || to.Sub(now) != c.life {
			t.Errorf("at most %v: %v before, for %v", c.most, now.Sub(from), to.Sub(now))
		}
	}
}
