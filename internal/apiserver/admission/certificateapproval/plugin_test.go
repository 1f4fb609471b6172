package certificateapproval_test

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/certificateapproval"
)

func request(t *testing.T, signer string) *certificatesv1.CertificateSigningRequest {
	return admissiontest.Parse(t, &certificatesv1.CertificateSigningRequest{}, `{metadata: {name: csr}, spec: {signerName: "`+signer+`"}}`)
}

func TestApproval(t *testing.T) {
	const signer, other = "example.com/signer", "example.com/other"
	const refusal = `certificatesigningrequests.certificates.k8s.io "csr" is forbidden: user not permitted to approve requests with signerName "example.com/signer"`
	approval := func(a *admission.Attributes) *admission.Attributes {
		a.Subresource = "approval"
		return a
	}
	dry := approval(admissiontest.Update(request(t, signer), request(t, signer)))
	dry.DryRun = true
	for _, c := range []struct {
		name  string
		allow admissiontest.Allow
		write *admission.Attributes
		want  string
	}{
		{"an approver of the signer", admissiontest.Allow{Verb: "approve", Name: signer}, approval(admissiontest.Update(request(t, signer), request(t, signer))), ""},
		{"an approver of the domain", admissiontest.Allow{Verb: "approve", Name: "example.com/*"}, approval(admissiontest.Update(request(t, signer), request(t, signer))), ""},
		{"a user without permission", admissiontest.Allow{}, approval(admissiontest.Update(request(t, signer), request(t, signer))), refusal},
		{"a user without permission, dry run", admissiontest.Allow{}, dry, refusal},
		{"a user who may only sign", admissiontest.Allow{Verb: "sign", Name: signer}, approval(admissiontest.Update(request(t, signer), request(t, signer))), refusal},
		{"an approver of another signer", admissiontest.Allow{Verb: "approve", Name: other}, approval(admissiontest.Update(request(t, signer), request(t, signer))), refusal},
		{"an approver of the signer that the new object names", admissiontest.Allow{Verb: "approve", Name: other}, approval(admissiontest.Update(request(t, other), request(t, signer))), refusal},
		{"the main resource is not handled", admissiontest.Allow{}, admissiontest.Update(request(t, signer), request(t, signer)), ""},
		{"status is not handled", admissiontest.Allow{}, admissiontest.Subresource(admissiontest.Update(request(t, signer), request(t, signer)), request(t, signer), "status"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			admissiontest.Expect(t, admissiontest.Through(t, certificateapproval.New(c.allow), c.write), c.want)
		})
	}
}
