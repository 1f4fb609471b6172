package certificateapproval

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/signerauthz"
	"skiff/internal/apiserver/authz"
)

// New returns the plugin.
func New(authorizer authz.Authorizer) admission.Plugin {
	return signerauthz.New(authorizer, signerauthz.Check{Plugin: "CertificateApproval", Verb: "approve",
		Denial: "user not permitted to approve requests with signerName %q", Handles: handles, Signer: signer})
}

var signingRequests = certificatesv1.Resource("certificatesigningrequests")

// handles reports whether the write is an update of certificatesigningrequests/approval.
func handles(a *admission.Attributes) bool {
	return a.Subresource == "approval" && a.Operation == admission.Update && a.Is(signingRequests)
}

// signer returns the signer of the stored request: the new one could name another.
func signer(a *admission.Attributes) (name string, needed bool, err error) {
	csr, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return "", false, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Old)
	}
	return csr.Spec.SignerName, true, nil
}
