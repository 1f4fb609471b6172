package certificatesigning_test

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/certificatesigning"
)

func TestSigning(t *testing.T) {
	const signer = "example.com/signer"
	const refusal = `certificatesigningrequests.certificates.k8s.io "csr" is forbidden: user not permitted to sign requests with signerName "example.com/signer"`
	const (
		plain     = `{metadata: {name: csr}, spec: {signerName: example.com/signer}}`
		labelled  = `{metadata: {name: csr, labels: {a: b}}, spec: {signerName: example.com/signer}}`
		issued    = `{metadata: {name: csr}, spec: {signerName: example.com/signer}, status: {certificate: AAAA}}`
		failed    = `{metadata: {name: csr}, spec: {signerName: example.com/signer}, status: {conditions: [{type: Failed, status: "True"}]}}`
		elsewhere = `{metadata: {name: csr}, spec: {signerName: example.com/other}, status: {certificate: AAAA}}`
	)
	for _, c := range []struct {
		name          string
		allow         admissiontest.Allow
		subresource   string
		old, modified string
		want          string
	}{
		{"a signer issues", admissiontest.Allow{Verb: "sign", Name: signer}, "status", plain, issued, ""},
		{"a signer of the domain issues", admissiontest.Allow{Verb: "sign", Name: "example.com/*"}, "status", plain, issued, ""},
		{"a signer fails the request", admissiontest.Allow{Verb: "sign", Name: signer}, "status", plain, failed, ""},
		{"a user without permission issues", admissiontest.Allow{}, "status", plain, issued, refusal},
		{"a user without permission fails the request", admissiontest.Allow{}, "status", plain, failed, refusal},
		{"an approver issues", admissiontest.Allow{Verb: "approve", Name: signer}, "status", plain, issued, refusal},
		{"a signer of the signer that the new object names", admissiontest.Allow{Verb: "sign", Name: "example.com/other"}, "status", plain, elsewhere, refusal},
		{"nothing of the status changes", admissiontest.Allow{}, "status", plain, labelled, ""},
		{"the main resource is not handled", admissiontest.Allow{}, "", plain, issued, ""},
		{"approval is not handled", admissiontest.Allow{}, "approval", plain, issued, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, csr := &certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequest{}
			write := admissiontest.Update(admissiontest.Parse(t, csr, c.modified), admissiontest.Parse(t, old, c.old))
			write.Subresource = c.subresource
			admissiontest.Expect(t, admissiontest.Through(t, certificatesigning.New(c.allow), write), c.want)
		})
	}
}
