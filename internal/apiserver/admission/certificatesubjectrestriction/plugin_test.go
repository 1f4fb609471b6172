package certificatesubjectrestriction_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/certificatesubjectrestriction"
)

func pemRequest(t *testing.T, organizations ...string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: organizations}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestSubject(t *testing.T) {
	const client = certificatesv1.KubeAPIServerClientSignerName
	const refusal = `certificatesigningrequests.certificates.k8s.io "csr" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`
	for _, c := range []struct {
		name, signer string
		request      []byte
		want         string
	}{
		{"another group", client, pemRequest(t, "team"), ""},
		{"system:masters", client, pemRequest(t, "system:masters"), refusal},
		{"system:masters among others", client, pemRequest(t, "team", "system:masters"), refusal},
		{"system:masters of another signer", "example.com/signer", pemRequest(t, "system:masters"), ""},
		{"no request at all", client, []byte("nonsense"), `certificatesigningrequests.certificates.k8s.io "csr" is forbidden: failed to parse CSR: PEM block type must be CERTIFICATE REQUEST`},
	} {
		t.Run(c.name, func(t *testing.T) {
			csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr"}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: c.signer, Request: c.request}}
			admissiontest.Expect(t, admissiontest.Through(t, certificatesubjectrestriction.New(), admissiontest.Create(csr)), c.want)
		})
	}
}
